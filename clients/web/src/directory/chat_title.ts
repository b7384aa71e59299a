// The title of a chat: the name of the other person or of the group.

import type { Chat } from "tierchat";
import { useText } from "../i18n";
import { usePerson } from "./directory";

/** Return the title of a chat. */
export function useChatTitle(chat: Chat): string {
  const text = useText();
  const peer = usePerson(chat.kind === "direct" ? (chat.peer ?? "") : "");
  if (chat.kind === "direct") return peer.name || chat.id;
  return chat.name || text.chats.unnamedGroup;
}
