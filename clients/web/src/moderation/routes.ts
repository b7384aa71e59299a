// Pages of moderation.

import { route } from "../app/router";

/** The routes of moderation. */
export const routes = [
  route({
    path: "/moderation",
    section: "moderation",
    pane: "wide",
    load: () => import("./ModerationPage"),
  }),
];
