// The page that asks which chat gets content that another application has shared.

import { route } from "../app/router";

/** The routes of the share target. */
export const routes = [
  route({ path: "/share", section: "chats", pane: "wide", load: () => import("./SharePage") }),
];
