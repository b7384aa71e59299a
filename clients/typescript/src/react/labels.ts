// Texts of the components.

/** Texts of the components; English by default. */
export interface Labels {
  chats: string;
  messages: string;
  members: string;
  message: string;
  send: string;
  attach: string;
  remove: string;
  retry: string;
  discard: string;
  stop: string;
  loadOlder: string;
  deleted: string;
  unread: (count: number) => string;
  typing: (names: readonly string[]) => string;
  noChats: string;
  noMessages: string;
}

/** The English texts. */
export const ENGLISH: Labels = {
  chats: "Chats",
  messages: "Messages",
  members: "Members",
  message: "Message",
  send: "Send",
  attach: "Attach files",
  remove: "Remove",
  retry: "Try again",
  discard: "Discard",
  stop: "Stop",
  loadOlder: "Load older messages",
  deleted: "This message was deleted",
  unread: (count) => `${count} unread`,
  typing: (names) => `${names.join(", ")} ${names.length === 1 ? "is" : "are"} typing…`,
  noChats: "No chats yet",
  noMessages: "No messages yet",
};
