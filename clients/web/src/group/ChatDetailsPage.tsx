// The details of a chat as a page: the way to them on a phone, and a link that can be shared.

import { navigate, pathTo, type PageProps } from "../app/router";
import { ChatDetails } from "./ChatDetails";

/** The page `/chats/:chat/details`. */
export default function ChatDetailsPage({ params }: PageProps) {
  const chat = params["chat"] ?? "";
  return <ChatDetails chat={chat} onClose={() => navigate(pathTo("/chats/:chat", { chat }))} />;
}
