// Pinned messages, by REST.

import { createCaller } from "./http_client.js";
import { ModerationFailed } from "./moderation.js";

const LISTED_MAX = 200; // more than the server's limit per chat

/** A failed request; the message is shown to users. */
export class PinFailed extends ModerationFailed {}

/** `session()` returns `{token}`. */
export function createPins({ session, newId }) {
  const call = createCaller(session, (status) =>
    Object.assign(new PinFailed(status === 0 ? "Can't reach the server." : inWords(status)), {
      status,
    }),
  );
  const chatPath = (chat) => `/v1/chats/${encodeURIComponent(chat)}`;
  const pinPath = (chat, seq) => `${chatPath(chat)}/pins/${seq}?ref=${newId()}`;

  /** List pinned messages, the newest first: `[{pinned_at, message}]`. */
  async function list(chat) {
    const found = [];
    let cursor = "";
    do {
      const page = await call("GET", `${chatPath(chat)}/pins?limit=200${cursor}`);
      found.push(...page.items);
      cursor = page.next === null ? "" : `&cursor=${encodeURIComponent(page.next)}`;
    } while (cursor !== "" && found.length < LISTED_MAX);
    return found;
  }

  /** Return whether the user may pin messages of a chat. */
  async function mayPin(chat, user) {
    const { kind, roles, blocked = false, ended = false } = await call("GET", chatPath(chat));
    if (blocked || ended) return false;
    return kind !== "group" || ["owner", "admin"].includes(roles?.[user]);
  }

  return {
    list,
    mayPin,
    pin: (chat, seq) => call("PUT", pinPath(chat, seq)),
    unpin: (chat, seq) => call("DELETE", pinPath(chat, seq)),
  };
}

function inWords(status) {
  if (status === 403) return "You don't have permission to pin messages in this chat.";
  if (status === 404) return "The message no longer exists.";
  if (status === 409) return "The message was deleted.";
  if (status === 413) return "This chat has too many pinned messages. Unpin one first.";
  if (status === 429) return "Too many requests. Wait a moment, then try again.";
  return "Something went wrong. Try again.";
}
