// Gives content that another application has shared to the composer of the chosen chat.

import { useEffect, useRef } from "react";
import { useConnection } from "tierchat/react";
import {
  dropSharedContent,
  findSharedContent,
  type SharedContent,
} from "../../share/shared_content";
import { useConversation } from "../model/context";

/**
 * Call `onContent` with the content that is waiting for the open chat, once.
 *
 * The page may not know yet that the user can no longer write here. The content waits until the
 * chat is current, so that another chat can be chosen for it. A device without a network does not
 * wait.
 */
export function useSharedContent(onContent: (content: SharedContent) => void): void {
  const { chat, group } = useConversation();
  const { isOnline } = useConnection();
  const isReady = (isOnline && group.isKnown) || !navigator.onLine;
  const handler = useRef(onContent);
  handler.current = onContent;
  useEffect(() => {
    if (!isReady) return undefined;
    let isCurrent = true;
    const deliver = async (): Promise<void> => {
      const content = await findSharedContent(chat.id);
      if (content === null || !isCurrent) return;
      handler.current(content);
      await dropSharedContent();
    };
    deliver().catch(() => {}); // kept: the page that asks for the chat finds it
    return () => {
      isCurrent = false;
    };
  }, [chat, isReady]);
}
