// Pages of AI companions.

import { route } from "../app/router";

/** The routes of companions. */
export const routes = [
  route({
    path: "/companions",
    section: "companions",
    pane: "wide",
    load: () => import("./CompanionsPage"),
  }),
];
