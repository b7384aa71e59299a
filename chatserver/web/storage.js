// Browser storage. It may be full, disabled or hold invalid data: reading never throws, and failed
// writes are ignored.
//
// per tab      session   {token, user, expiresAt, isDemo, isAccount}; account sessions without the token
//              device    the id this tab has for the server
//              outbox    {user, outbox, unstored}: messages not stored yet
//              facts     {user, facts: [[chat, stored, [[user, read], …]], …]}
// per browser  theme     light · dark
//              account   true: a password login exists, by an HttpOnly cookie
//              drafts:<user>   [[chat, text], …]

import { isId } from "./format.js";

const PREFIX = "chat.";
const DRAFTS_MAX = 100;
const FACTS_MAX = 200; // chats
const ID_LETTERS = "abcdefghijklmnopqrstuvwxyz234567";

/** A fresh id of 120 random bits; `crypto.randomUUID` is missing on plain http. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(24));
  return Array.from(bytes, (byte) => ID_LETTERS[byte & 31]).join("");
}

function read(area, name) {
  try {
    return JSON.parse(globalThis[area].getItem(PREFIX + name));
  } catch {
    return null;
  }
}

function write(area, name, value) {
  try {
    if (value === null) globalThis[area].removeItem(PREFIX + name);
    else globalThis[area].setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // Full or disabled: the tab continues without storage.
  }
}

export function loadSession() {
  const session = read("sessionStorage", "session");
  return typeof session?.token === "string" ? session : null;
}

/** Save the session; an account's token is not saved, as the cookie grants another one. */
export function saveSession(session) {
  const isAccount = session?.isAccount === true;
  const kept = isAccount ? { ...session, token: "ended", expiresAt: 0 } : session;
  write("sessionStorage", "session", kept);
}

/** Return whether a new tab should try to continue a login. */
export function loadHasAccount() {
  return read("localStorage", "account") === true;
}

export function saveHasAccount(has) {
  write("localStorage", "account", has ? true : null);
}

/** This tab's device id; `renew` it if another tab uses it too. */
export function deviceId({ renew = false } = {}) {
  const known = read("sessionStorage", "device");
  if (!renew && typeof known === "string" && isId(known)) return known;
  const device = `web-${newId()}`;
  write("sessionStorage", "device", device);
  return device;
}

/** Load this user's unsent and unstored messages of this tab: `{outbox, unstored}`. */
export function loadOutbox(user) {
  const kept = read("sessionStorage", "outbox");
  if (kept?.user !== user || !Array.isArray(kept.outbox) || !Array.isArray(kept.unstored)) {
    return { outbox: [], unstored: [] };
  }
  return { outbox: kept.outbox.filter(isEntry), unstored: kept.unstored.filter(isEntry) };
}

function isEntry(entry) {
  return isId(entry?.ref) && isId(entry.chat) && typeof entry.body === "string";
}

export function saveOutbox(user, outbox, unstored) {
  write("sessionStorage", "outbox", { user, outbox, unstored });
}

/** Load the known stored and read marks, as Map chat → {stored, marks}. */
export function loadFacts(user) {
  const kept = read("sessionStorage", "facts");
  if (kept?.user !== user || !Array.isArray(kept.facts)) return new Map();
  const fact = ([chat, stored, marks]) => {
    const reads = marks.map(([reader, upto]) => [reader, { read: upto, received: upto }]);
    return [chat, { stored, marks: new Map(reads) }];
  };
  return new Map(kept.facts.map(fact));
}

export function saveFacts(user, chats) {
  const newest = [...chats.values()].sort((a, b) => b.activity - a.activity).slice(0, FACTS_MAX);
  const reads = (chat) => [...chat.marks].map(([reader, mark]) => [reader, mark.read]);
  const facts = newest.map((chat) => [chat.id, chat.stored, reads(chat)]);
  write("sessionStorage", "facts", { user, facts });
}

export function loadDrafts(user) {
  const kept = read("localStorage", `drafts:${user}`);
  return new Map(Array.isArray(kept) ? kept.filter(([id, text]) => isId(id) && text) : []);
}

export function saveDrafts(user, drafts) {
  const kept = [...drafts].slice(-DRAFTS_MAX);
  write("localStorage", `drafts:${user}`, kept.length > 0 ? kept : null);
}

/** Delete what this browser stores of a deleted user. */
export function forgetUser(user) {
  for (const name of ["outbox", "facts"]) write("sessionStorage", name, null);
  write("localStorage", `drafts:${user}`, null);
  saveHasAccount(false);
}

export function loadTheme() {
  const theme = read("localStorage", "theme");
  return theme === "light" || theme === "dark" ? theme : "system";
}

export function saveTheme(theme) {
  write("localStorage", "theme", theme === "system" ? null : theme);
}
