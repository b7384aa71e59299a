// The German catalog.

import type { Catalog } from "./catalog";
import { chats } from "./de/chats";
import { common } from "./de/common";
import { session } from "./de/session";
import { settings } from "./de/settings";

/** All texts in German. */
export const de: Catalog = { common, session, chats, settings };
