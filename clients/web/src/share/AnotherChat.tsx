// A button for shared content in a chat where the user can't send messages.

import { useEffect, useState } from "react";
import { Button } from "../design";
import { useText } from "../i18n";
import { navigate } from "../page/router";
import { findSharedContent } from "./shared_content";

/** Offers to choose another chat, if content is shared to this one. */
export function AnotherChat({ chat }: { chat: string }) {
  const text = useText().share;
  const [isWaiting, setWaiting] = useState(false);
  useEffect(() => {
    let isCurrent = true;
    findSharedContent(chat).then(
      (content) => isCurrent && setWaiting(content !== null),
      () => {},
    );
    return () => {
      isCurrent = false;
    };
  }, [chat]);
  if (!isWaiting) return null;
  return (
    <Button variant="primary" onClick={() => navigate("/share", { replace: true })}>
      {text.anotherChat}
    </Button>
  );
}
