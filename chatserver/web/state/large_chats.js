// Large chats: their events are not in the inbox (`seq` 0) but have a position in the chat, `cs`.
//
// `large` maps each such chat to the last position received. It is sent to the server with `hello`.

/** Add the start positions of a `welcome` or a snapshot; known positions are kept. */
export function addStartPositions(large, heads = []) {
  return new Map([...heads.map(({ chat, seq }) => [chat, seq]), ...large]);
}

/** Return whether a large chat has messages for which no event will arrive. */
export function isBehind(chats, heads = []) {
  return heads.some(({ chat, seq }) => (chats.get(chat)?.top ?? 0) < seq);
}

/** Return whether an event of a large chat is new. */
export function isNewEvent(large, event) {
  return event.cs > (large.get(event.chat) ?? 0);
}

/** Move to the position of an event. */
export function advance(large, event) {
  return new Map(large).set(event.chat, event.cs);
}

/** Apply an inbox event by which a chat becomes large or stops being large; else the same map. */
export function applyTransition(large, frame, me) {
  const { info, message } = frame;
  if (frame.kind === "chat" && info?.since !== undefined) {
    if (info.large) return new Map(large).set(frame.chat, info.since);
    return without(large, frame.chat);
  }
  const isOut = frame.kind === "member" && message?.user === me && !message.role;
  return isOut ? without(large, frame.chat) : large;
}

/** Apply a snapshot: its positions replace ours, as history covers everything before. */
export function applySnapshot(large, summaries = [], isNewEpoch = false) {
  const tops = new Map(summaries.map(({ chat, top = 0 }) => [chat, top]));
  const kept = [...large].filter(([chat]) => tops.has(chat) || !isNewEpoch);
  return new Map(kept.map(([chat, place]) => [chat, tops.get(chat) ?? place]));
}

function without(large, chat) {
  if (!large.has(chat)) return large;
  const changed = new Map(large);
  changed.delete(chat);
  return changed;
}
