// Pages of AI companions.

import { createRoute } from "../page/router";

/** The routes of companions. */
export const routes = [
  createRoute({
    path: "/companions",
    section: "companions",
    pane: "wide",
    load: () => import("./CompanionsPage"),
  }),
];
