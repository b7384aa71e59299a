// Messages that end: hidden on time, without a word from the server.
//
// A message with `expires_at` (seconds) is a tombstone from then on: it keeps its place, and says
// nothing. What the server sends later is a tombstone already.

/** What is shown of a message in a line: its text, the names of its files, or why there is none. */
export function shownText(message) {
  if (!message.deleted) return message.body || fileNames(message.attachments ?? []);
  return message.expires_at === undefined ? "This message was deleted" : "Expired message";
}

/** Files in words: "Files: a.png, b.pdf". */
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

/** Return `chats` (a Map) as they are at `now` (ms); the same object if nothing has ended. */
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
