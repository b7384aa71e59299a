// Pages of search.

import { route } from "../app/router";

/** The routes of search. */
export const routes = [
  route({ path: "/search", section: "search", pane: "list", load: () => import("./SearchPage") }),
  route({
    path: "/search/:chat",
    section: "search",
    pane: "detail",
    list: "/search",
    load: () => import("./FoundMessagePage"),
  }),
];
