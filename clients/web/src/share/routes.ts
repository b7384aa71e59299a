// The page of the share target.

import { createRoute } from "../page/router";

/** The routes of the share target. */
export const routes = [
  createRoute({
    path: "/share",
    section: "chats",
    pane: "wide",
    load: () => import("./SharePage"),
  }),
];
