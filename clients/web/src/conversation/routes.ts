// The page of one chat.

import { route } from "../app/router";

/** The routes of a conversation. */
export const routes = [
  route({
    path: "/chats/:chat",
    section: "chats",
    pane: "detail",
    list: "/chats",
    load: () => import("./ConversationPage"),
  }),
];
