// Pages of search.

import { createRoute } from "../app/router";

/** The routes of search. */
export const routes = [
  createRoute({
    path: "/search",
    section: "search",
    pane: "list",
    load: () => import("./SearchPage"),
  }),
  createRoute({
    path: "/search/:chat",
    section: "search",
    pane: "detail",
    list: "/search",
    load: () => import("./SearchResultPage"),
  }),
];
