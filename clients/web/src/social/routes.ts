// Pages of posts and saved items.

import { route } from "../app/router";

/** The routes of the timeline. */
export const routes = [
  route({
    path: "/timeline",
    section: "timeline",
    pane: "wide",
    load: () => import("./TimelinePage"),
  }),
  route({ path: "/saved", section: "timeline", pane: "wide", load: () => import("./SavedPage") }),
];
