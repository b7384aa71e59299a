// Pages of search.

import { createRoute } from "../page/router";

/** The routes of search. */
export const routes = [
  createRoute({
    path: "/search",
    section: "search",
    pane: "list",
    load: () => import("./SearchPage"),
  }),
];
