// Asks for a chat to which content from another application is sent.

import { Share2 } from "lucide-react";
import { useEffect, useState } from "react";
import { ChatChooser } from "../chats/ChatChooser";
import { Button, EmptyState } from "../design";
import { useText } from "../i18n";
import { Page } from "../page/Page";
import { buildPath, navigate, useLocation } from "../page/router";
import styles from "./SharePage.module.css";
import {
  canReceiveShares,
  chooseChat,
  dropSharedContent,
  findSharedContent,
  type SharedContent,
} from "./shared_content";

/** The page "share". */
export default function SharePage() {
  const words = useText();
  const text = words.share;
  // The server redirects here if the service worker did not handle the share.
  const { query } = useLocation();
  const isMissed = query.has("missed");
  // The service worker redirects here if another site has sent the form.
  const [isRefused] = useState(() => query.has("refused") || !canReceiveShares());
  const [content, setContent] = useState<SharedContent | null | undefined>(undefined);
  useEffect(() => {
    let isCurrent = true;
    chooseChat(null);
    if (isRefused && !canReceiveShares()) void dropSharedContent();
    if (isRefused) {
      setContent(null);
      return undefined;
    }
    const set = (loaded: SharedContent | null): void => void (isCurrent && setContent(loaded));
    findSharedContent().then(set, () => set(null));
    return () => {
      isCurrent = false;
    };
  }, [isRefused]);
  const leave = (): void => {
    void dropSharedContent();
    navigate("/chats", { replace: true });
  };
  if (content === undefined) return null;
  if (content === null) {
    return (
      <EmptyState
        isPage
        icon={Share2}
        title={isMissed ? text.missed : isRefused ? text.refused : text.nothing}
        action={<Button onClick={leave}>{words.common.backToChats}</Button>}
      />
    );
  }
  return (
    <Page
      title={text.title}
      isBackShown
      onBack={leave}
      subtitle={content.files.length > 0 ? text.files(content.files.length) : null}
    >
      {content.text !== "" && (
        <blockquote className={styles["text"]} dir="auto">
          {content.text}
        </blockquote>
      )}
      <ChatChooser
        onChoose={({ id }) => {
          chooseChat(id);
          navigate(buildPath("/chats/:chat", { chat: id }), { replace: true });
        }}
      />
    </Page>
  );
}
