// Pages of the details of a chat.

import { createRoute } from "../page/router";

/** The routes of chat details. */
export const routes = [
  createRoute({
    path: "/chats/:chat/details",
    section: "chats",
    pane: "detail",
    list: "/chats",
    load: () => import("./ChatDetailsPage"),
  }),
];
