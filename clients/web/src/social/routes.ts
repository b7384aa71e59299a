// Pages of posts and saved items.

import { createRoute } from "../page/router";

/** The routes of the timeline. */
export const routes = [
  createRoute({
    path: "/timeline",
    section: "timeline",
    pane: "wide",
    load: () => import("./TimelinePage"),
  }),
  createRoute({
    path: "/saved",
    section: "timeline",
    pane: "wide",
    load: () => import("./SavedPage"),
  }),
];
