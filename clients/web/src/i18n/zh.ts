// The Chinese catalog.

import type { Catalog } from "./catalog";
import { chats } from "./zh/chats";
import { common } from "./zh/common";
import { companions } from "./zh/companions";
import { content } from "./zh/content";
import { conversation } from "./zh/conversation";
import { group } from "./zh/group";
import { moderation } from "./zh/moderation";
import { operations } from "./zh/operations";
import { people } from "./zh/people";
import { search } from "./zh/search";
import { session } from "./zh/session";
import { settings } from "./zh/settings";
import { share } from "./zh/share";
import { social } from "./zh/social";

/** All texts in Chinese. */
export const zh: Catalog = {
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
};
