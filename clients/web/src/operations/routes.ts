// Pages of operations.

import { createRoute } from "../page/router";

/** The routes of operations. */
export const routes = [
  createRoute({
    path: "/operations",
    section: "operations",
    pane: "wide",
    load: () => import("./OperationsPage"),
  }),
];
