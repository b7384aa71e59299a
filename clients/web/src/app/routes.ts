// All pages. Each feature folder exports its `routes`.

import { routes as chats } from "../chats/routes";
import { routes as conversation } from "../conversation/routes";
import { routes as settings } from "../settings/routes";
import type { Route } from "./router";

/** The routes of the client; the first match is shown. */
export const ROUTES: readonly Route[] = [...chats, ...conversation, ...settings];
