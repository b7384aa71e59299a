// The application: the login page, or the shell with the chats.

import { CloudOff } from "lucide-react";
import { ChatProvider } from "tierchat/react";
import { Button, EmptyState, Toaster, Tooltips } from "../design";
import { useText } from "../i18n";
import { ErrorBoundary } from "./ErrorBoundary";
import { LoginPage } from "./LoginPage";
import { useSession, useSessionState } from "./session_context";
import { Shell } from "./Shell";
import { StartPage } from "./StartPage";

/** The root component. */
export function App() {
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
      return <StartPage />;
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
      if (!state.isReady) return <StartPage />;
      return (
        <ChatProvider key={state.user} client={state.client}>
          <Shell />
        </ChatProvider>
      );
  }
}
