// The user's inbox: each event once, in order (the device's side of guarantee P4).
//
// The server sends contiguous events. After a gap, later events are held back in `ahead`, and the
// client requests a `sync` until `ahead` is empty.

const AHEAD_MAX = 500;

/** Classify an event: apply, drop (already applied) or gap. */
export function classifyEvent(cursor, event) {
  if (cursor === null || event.epoch !== cursor.epoch) return "gap";
  if (event.seq <= cursor.seq) return "drop";
  return event.seq === cursor.seq + 1 ? "apply" : "gap";
}

/** Hold back an early event. Beyond the limit it is dropped; `sync` returns it again. */
export function holdBack(ahead, event) {
  if (ahead.length >= AHEAD_MAX) return ahead;
  if (ahead.some((held) => held.seq === event.seq && held.epoch === event.epoch)) return ahead;
  return [...ahead, event].sort((a, b) => a.seq - b.seq);
}

/** Remove the event that follows the cursor from those held back: `{next, rest}`. */
export function takeNext(ahead, cursor) {
  const rest = ahead.filter((event) => classifyEvent(cursor, event) === "gap");
  const next = ahead.find((event) => classifyEvent(cursor, event) === "apply") ?? null;
  return { next, rest };
}
