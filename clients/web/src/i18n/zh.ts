// The Chinese catalog.

import type { Catalog } from "./catalog";
import { chats } from "./zh/chats";
import { common } from "./zh/common";
import { content } from "./zh/content";
import { conversation } from "./zh/conversation";
import { session } from "./zh/session";
import { settings } from "./zh/settings";

/** All texts in Chinese. */
export const zh: Catalog = { common, content, conversation, session, chats, settings };
