// Expiring messages, hidden on time without an event from the server.
//
// A message becomes a tombstone at `expires_at` (seconds). The server sends expired messages as
// tombstones.

/** A message on one line: its text, its file names, or why it has none. */
export function shownText(message) {
  if (!message.deleted) return message.body || fileNames(message.attachments ?? []);
  return message.expires_at === undefined ? "This message was deleted" : "Expired message";
}

/** File names as text: "Files: a.png, b.pdf". */
export function fileNames(files) {
  if (files.length === 0) return "";
  return `${files.length === 1 ? "File" : "Files"}: ${files.map(({ name }) => name).join(", ")}`;
}

function expire(message, nowS) {
  const { expires_at: end, deleted } = message;
  if (end === undefined || deleted || end > nowS) return message;
  return { ...message, body: "", deleted: true };
}

function expireChat(chat, nowS) {
  const last = chat.last === null ? null : expire(chat.last, nowS);
  const messages = chat.messages.map((message) => expire(message, nowS));
  const isSame = last === chat.last && messages.every((each, i) => each === chat.messages[i]);
  return isSame ? chat : { ...chat, last, messages };
}

/** Return `chats` (a Map) as of `now` (ms); the same object if nothing has expired. */
export function expireChats(chats, now) {
  let changed = chats;
  for (const [id, chat] of chats) {
    const expired = expireChat(chat, now / 1000);
    if (expired === chat) continue;
    if (changed === chats) changed = new Map(chats);
    changed.set(id, expired);
  }
  return changed;
}
