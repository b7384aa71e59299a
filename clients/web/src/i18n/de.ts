// The German catalog.

import type { Catalog } from "./catalog";
import { chats } from "./de/chats";
import { common } from "./de/common";
import { companions } from "./de/companions";
import { content } from "./de/content";
import { conversation } from "./de/conversation";
import { group } from "./de/group";
import { moderation } from "./de/moderation";
import { operations } from "./de/operations";
import { people } from "./de/people";
import { search } from "./de/search";
import { session } from "./de/session";
import { settings } from "./de/settings";
import { share } from "./de/share";
import { social } from "./de/social";

/** All texts in German. */
export const de: Catalog = {
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
