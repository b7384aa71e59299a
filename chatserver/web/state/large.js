// Large chats: their events have no place in the inbox (`seq` 0); the place is the chat's own, `cs`.
//
// `large` maps each such chat to the place that we have. It is told to the server with `hello`.

/** Take `large` of a `welcome` or a snapshot: where each chat's events begin. A place that we have is ours to keep. */
export function beginLarge(large, heads = []) {
  return new Map([...heads.map(({ chat, seq }) => [chat, seq]), ...large]);
}

/** Whether something was said in a large chat that no event is going to tell of. */
export function isBehind(chats, heads = []) {
  return heads.some(({ chat, seq }) => (chats.get(chat)?.top ?? 0) < seq);
}

/** Whether an event of a large chat is news to us. */
export function isNews(large, event) {
  return event.cs > (large.get(event.chat) ?? 0);
}

/** Move on to the place of an event. */
export function moveOn(large, event) {
  return new Map(large).set(event.chat, event.cs);
}

/** Take an event of the inbox by which a chat becomes large, or ceases to be; else the same map. */
export function turn(large, frame, me) {
  const { info, message } = frame;
  if (frame.kind === "chat" && info?.since !== undefined) {
    if (info.large) return new Map(large).set(frame.chat, info.since);
    return without(large, frame.chat);
  }
  const isOut = frame.kind === "member" && message?.user === me && !message.role;
  return isOut ? without(large, frame.chat) : large;
}

/** Take a snapshot: what it lists is read up to there from the history. */
export function startAgain(large, summaries = [], isNewEpoch = false) {
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
