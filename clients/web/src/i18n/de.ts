// The German catalog.

import type { Catalog } from "./catalog";
import { chats } from "./de/chats";
import { common } from "./de/common";
import { content } from "./de/content";
import { conversation } from "./de/conversation";
import { session } from "./de/session";
import { settings } from "./de/settings";

/** All texts in German. */
export const de: Catalog = { common, content, conversation, session, chats, settings };
