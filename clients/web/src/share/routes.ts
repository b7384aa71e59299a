// The page of the share target.

import { route } from "../app/router";

/** The routes of the share target. */
export const routes = [
  route({ path: "/share", section: "chats", pane: "wide", load: () => import("./SharePage") }),
];
