// Adds content that another application has shared to the composer of the chosen chat.

import { useEffect, useRef } from "react";
import { useConnection } from "tierchat/react";
import {
  dropSharedContent,
  findSharedContent,
  type SharedContent,
} from "../../share/shared_content";
import { useConversation } from "../model/context";

/**
 * Call `onContent` once with the content that is shared to the open chat.
 *
 * Online, this waits until the group is loaded: if the user can no longer send messages here, they
 * can choose another chat for the content. Offline, it does not wait.
 */
export function useSharedContent(onContent: (content: SharedContent) => void): void {
  const { chat, group } = useConversation();
  const { isOnline } = useConnection();
  const isReady = (isOnline && group.isLoaded) || !navigator.onLine;
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
    deliver().catch(() => {}); // the content is kept for the page that chooses a chat
    return () => {
      isCurrent = false;
    };
  }, [chat, isReady]);
}
