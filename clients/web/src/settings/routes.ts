// Pages of the settings.

import { route } from "../app/router";

const LIST = "/settings";

function detail(path: string, load: Parameters<typeof route>[0]["load"]) {
  return route({ path: `${LIST}/${path}`, section: "settings", pane: "detail", list: LIST, load });
}

/** The routes of the settings. */
export const routes = [
  route({ path: LIST, section: "settings", pane: "list", load: () => import("./SettingsPage") }),
  detail("profile", () => import("./ProfilePage")),
  detail("appearance", () => import("./AppearancePage")),
  detail("notifications", () => import("./NotificationsPage")),
  detail("password", () => import("./PasswordPage")),
  detail("devices", () => import("./DevicesPage")),
  detail("privacy", () => import("./PrivacyPage")),
  detail("shortcuts", () => import("./ShortcutsPage")),
];
