// Pages of people.

import { route } from "../app/router";

/** The routes of people. */
export const routes = [
  route({
    path: "/people",
    section: "people",
    pane: "list",
    load: () => import("./PeoplePage"),
  }),
  route({
    path: "/people/:user",
    section: "people",
    pane: "detail",
    list: "/people",
    load: () => import("./ProfilePage"),
  }),
];
