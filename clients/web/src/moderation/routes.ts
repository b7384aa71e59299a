// Pages of moderation.

import { createRoute } from "../page/router";

/** The routes of moderation. */
export const routes = [
  createRoute({
    path: "/moderation",
    section: "moderation",
    pane: "wide",
    load: () => import("./ModerationPage"),
  }),
];
