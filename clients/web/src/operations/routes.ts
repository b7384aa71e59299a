// Pages of operations.

import { route } from "../app/router";

/** The routes of operations. */
export const routes = [
  route({
    path: "/operations",
    section: "operations",
    pane: "wide",
    load: () => import("./OperationsPage"),
  }),
];
