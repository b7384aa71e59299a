// Search for people: contacts at once, then discoverable users of the server.

import { useChats, useClient } from "tierchat/react";
import { useDebounced } from "../data/use_debounced";
import { useLoad } from "../data/use_load";
import { isMatch, listContacts } from "./contacts";
import { getDirectory } from "./directory";

const CONTACTS_MAX = 6;
const DELAY_MS = 250;
const TYPED_MAX = 80;
const SEARCHABLE = /[\p{L}\p{N}]/u;

/** Return the users who match a text, contacts first; none for an empty text. */
export function usePeopleSearch(text: string): readonly string[] {
  const client = useClient();
  const profiles = getDirectory(client);
  const typed = text.trim().replace(/^@/, "").slice(0, TYPED_MAX);
  const contacts = listContacts(useChats(), client.user)
    .filter((user) => typed !== "" && isMatch(typed, user, profiles.get(user).name))
    .slice(0, CONTACTS_MAX);
  const debounced = useDebounced(typed, DELAY_MS);
  // Offline, only contacts are shown.
  const { data } = useLoad(SEARCHABLE.test(debounced) ? debounced : null, async () => {
    const { items } = await client.http.call("search_users", { q: debounced });
    for (const { user, name } of items) profiles.set(user, { name: name ?? user });
    return items.map(({ user }) => user);
  });
  const results = canShowResults(typed, debounced) ? (data ?? []) : [];
  return [...new Set([...contacts, ...results])];
}

/** Return whether results of `searched` can be shown until the results of `typed` are loaded. */
export function canShowResults(typed: string, searched: string): boolean {
  return typed !== "" && (typed.startsWith(searched) || searched.startsWith(typed));
}
