// Pages of the settings.

import { route } from "../app/router";

/** The routes of the settings. */
export const routes = [
  route({
    path: "/settings",
    section: "settings",
    pane: "list",
    load: () => import("./SettingsPage"),
  }),
];
