// Pages of the chat list.

import { route } from "../app/router";

/** The routes of the chat list. */
export const routes = [
  route({ path: "/chats", section: "chats", pane: "list", load: () => import("./ChatListPage") }),
];
