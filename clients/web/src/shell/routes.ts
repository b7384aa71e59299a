// All pages. Each feature folder exports its `routes`.

import { routes as chats } from "../chats/routes";
import { routes as companions } from "../companions/routes";
import { routes as conversation } from "../conversation/routes";
import { routes as group } from "../group/routes";
import { routes as moderation } from "../moderation/routes";
import { routes as operations } from "../operations/routes";
import type { Route } from "../page/router";
import { routes as people } from "../people/routes";
import { routes as search } from "../search/routes";
import { routes as settings } from "../settings/routes";
import { routes as share } from "../share/routes";
import { routes as social } from "../social/routes";

/** The routes of the client; the first match is shown. */
export const ROUTES: readonly Route[] = [
  ...chats,
  ...companions,
  ...conversation,
  ...group,
  ...moderation,
  ...operations,
  ...people,
  ...search,
  ...settings,
  ...share,
  ...social,
];
