// Pages of people.

import { createRoute } from "../page/router";

/** The routes of people. */
export const routes = [
  createRoute({
    path: "/people",
    section: "people",
    pane: "list",
    load: () => import("./PeoplePage"),
  }),
  createRoute({
    path: "/people/:user",
    section: "people",
    pane: "detail",
    list: "/people",
    load: () => import("./ProfilePage"),
  }),
];
