// The application: the login page, or the shell with the chats.

import { CloudOff } from "lucide-react";
import { useEffect } from "react";
import { ChatProvider } from "tierchat/react";
import { isStorageRefused, tabStorage } from "../data/browser_storage";
import { useObservable } from "../data/observable";
import { Button, EmptyState, showToast, Toaster, Tooltips } from "../design";
import { useText } from "../i18n";
import { useSession, useSessionState } from "../session/session_context";
import { ErrorBoundary } from "./ErrorBoundary";
import { LoginPage } from "./LoginPage";
import { Shell } from "./Shell";
import { StartPage } from "./StartPage";

const STORAGE_NOTICE = "tierchat.storageNotice"; // set once the notice was shown in this tab

/** The root component. */
export function App() {
  const { notStored } = useText().session;
  const isRefused = useObservable(isStorageRefused);
  useEffect(() => {
    if (!isRefused || tabStorage.get(STORAGE_NOTICE) !== null) return;
    tabStorage.set(STORAGE_NOTICE, "1");
    showToast(notStored, { isKept: true });
  }, [isRefused, notStored]);
  return (
    <>
      <ErrorBoundary>
        <Content />
      </ErrorBoundary>
      <Toaster />
      <Tooltips />
    </>
  );
}

function Content() {
  const text = useText();
  const session = useSession();
  const state = useSessionState();
  switch (state.kind) {
    case "starting":
      return <StartPage problem={null} />;
    case "unreachable":
      return (
        <EmptyState
          icon={CloudOff}
          title={text.session.unreachable}
          action={
            <Button variant="primary" onClick={() => void session.start()}>
              {text.common.tryAgain}
            </Button>
          }
        >
          {text.session.unreachableHint}
        </EmptyState>
      );
    case "loggedOut":
      return <LoginPage config={state.config} notice={state.notice} />;
    case "open":
      if (!state.isReady) return <StartPage problem={state.problem} />;
      return (
        <ChatProvider key={state.user} client={state.client}>
          <Shell />
        </ChatProvider>
      );
  }
}
