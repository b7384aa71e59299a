// Pages of the details of a chat.

import { route } from "../app/router";

/** The routes of chat details. */
export const routes = [
  route({
    path: "/chats/:chat/details",
    section: "chats",
    pane: "detail",
    list: "/chats",
    load: () => import("./ChatDetailsPage"),
  }),
];
