// Pages of the settings.

import { createRoute } from "../page/router";

const LIST = "/settings";

function createDetailRoute(path: string, load: Parameters<typeof createRoute>[0]["load"]) {
  const options = { section: "settings", pane: "detail", list: LIST } as const;
  return createRoute({ ...options, path: `${LIST}/${path}`, load });
}

/** The routes of the settings. */
export const routes = [
  createRoute({
    path: LIST,
    section: "settings",
    pane: "list",
    load: () => import("./SettingsPage"),
  }),
  createDetailRoute("profile", () => import("./EditProfilePage")),
  createDetailRoute("appearance", () => import("./AppearancePage")),
  createDetailRoute("notifications", () => import("./NotificationsPage")),
  createDetailRoute("password", () => import("./PasswordPage")),
  createDetailRoute("devices", () => import("./DevicesPage")),
  createDetailRoute("privacy", () => import("./PrivacyPage")),
  createDetailRoute("shortcuts", () => import("./ShortcutsPage")),
];
