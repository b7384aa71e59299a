// Pages of AI companions.

import { createRoute } from "../app/router";

/** The routes of companions. */
export const routes = [
  createRoute({
    path: "/companions",
    section: "companions",
    pane: "wide",
    load: () => import("./CompanionsPage"),
  }),
];
