// Search for people: contacts at once, then discoverable users of the server.

import { useChats, useClient } from "tierchat/react";
import { directoryOf } from "../app/directory";
import { useLoad } from "../data/use_load";
import { useSettled } from "../data/use_settled";
import { contactsOf, isMatch } from "./contacts";

const CONTACTS_MAX = 6;
const WAIT_MS = 250;
const TYPED_MAX = 80;
const SEARCHABLE = /[\p{L}\p{N}]/u;

/** Return the users who match a text, contacts first; none for an empty text. */
export function useFoundPeople(text: string): readonly string[] {
  const client = useClient();
  const profiles = directoryOf(client);
  const typed = text.trim().replace(/^@/, "").slice(0, TYPED_MAX);
  const contacts = contactsOf(useChats(), client.user)
    .filter((user) => typed !== "" && isMatch(typed, user, profiles.get(user).name))
    .slice(0, CONTACTS_MAX);
  const settled = useSettled(typed, WAIT_MS);
  // Offline, only contacts are shown.
  const { data } = useLoad(SEARCHABLE.test(settled) ? settled : null, async () => {
    const { items } = await client.http.call("search_users", { q: settled });
    for (const { user, name } of items) profiles.set(user, { name: name ?? user });
    return items.map(({ user }) => user);
  });
  const found = isContinued(typed, settled) ? (data ?? []) : [];
  return [...new Set([...contacts, ...found])];
}

/** Return whether results of `searched` can be shown until the results of `typed` are loaded. */
export function isContinued(typed: string, searched: string): boolean {
  return typed !== "" && (typed.startsWith(searched) || searched.startsWith(typed));
}
