// The page of one chat, also next to search results.

import { createRoute } from "../page/router";

/** The routes of a conversation. */
export const routes = [
  createRoute({
    path: "/chats/:chat",
    section: "chats",
    pane: "detail",
    list: "/chats",
    load: () => import("./ConversationPage"),
  }),
  createRoute({
    path: "/search/:chat",
    section: "search",
    pane: "detail",
    list: "/search",
    load: () => import("./ConversationPage"),
  }),
];
