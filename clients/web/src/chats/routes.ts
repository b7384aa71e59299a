// Pages of the chat list.

import type { Route } from "../page/router";
import ChatListPage from "./ChatListPage";

/** The routes of the chat list, which is part of the first load. */
export const routes: readonly Route[] = [
  { path: "/chats", section: "chats", pane: "list", page: ChatListPage },
];
