// The English catalog. Each feature has its own section.

import { chats } from "./en/chats";
import { common } from "./en/common";
import { companions } from "./en/companions";
import { content } from "./en/content";
import { conversation } from "./en/conversation";
import { group } from "./en/group";
import { moderation } from "./en/moderation";
import { operations } from "./en/operations";
import { people } from "./en/people";
import { search } from "./en/search";
import { session } from "./en/session";
import { settings } from "./en/settings";
import { share } from "./en/share";
import { social } from "./en/social";

/** All texts in English. A text with a value is a function of it. */
export const en = {
  chats,
  common,
  companions,
  content,
  conversation,
  group,
  moderation,
  operations,
  people,
  search,
  session,
  settings,
  share,
  social,
} as const;
