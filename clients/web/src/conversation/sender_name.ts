// Names of the senders of messages.

import { useChat } from "tierchat/react";
import { useChatTitle } from "../directory/chat_title";
import { usePerson } from "../directory/directory";
import { useConversation } from "./model/context";

/** Return the name of a sender. An AI companion has the name of its chat. */
export function useSenderName(sender: string): string {
  const { chat, me } = useConversation();
  const isCompanion = chat.kind === "companion" && sender !== me;
  const title = useChatTitle(useChat(chat.id));
  const person = usePerson(isCompanion ? "" : sender);
  return isCompanion ? title : person.name;
}
