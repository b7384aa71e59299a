// The page of one chat.

import { createRoute } from "../app/router";

/** The routes of a conversation. */
export const routes = [
  createRoute({
    path: "/chats/:chat",
    section: "chats",
    pane: "detail",
    list: "/chats",
    load: () => import("./ConversationPage"),
  }),
];
