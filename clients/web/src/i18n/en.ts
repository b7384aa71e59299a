// The English catalog. Each feature has its own section.

import { chats } from "./en/chats";
import { common } from "./en/common";
import { content } from "./en/content";
import { conversation } from "./en/conversation";
import { session } from "./en/session";
import { settings } from "./en/settings";

/** All texts in English. A text with a value is a function of it. */
export const en = { common, content, conversation, session, chats, settings } as const;
