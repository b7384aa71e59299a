// The user's inbox: each event once, in order (the device's side of promise P4).
//
// The server sends contiguous events. Should one be missing all the same, what comes after it
// waits in `ahead`, and the client asks for a `sync` while anything waits there.

const AHEAD_MAX = 500;

/** Says what to do with an event: apply, drop (the device has it) or gap. */
export function judge(cursor, event) {
  if (cursor === null || event.epoch !== cursor.epoch) return "gap";
  if (event.seq <= cursor.seq) return "drop";
  return event.seq === cursor.seq + 1 ? "apply" : "gap";
}

/** Keep an event that came too early. Beyond the bound it is dropped: `sync` brings it. */
export function holdBack(ahead, event) {
  if (ahead.length >= AHEAD_MAX) return ahead;
  if (ahead.some((held) => held.seq === event.seq && held.epoch === event.epoch)) return ahead;
  return [...ahead, event].sort((a, b) => a.seq - b.seq);
}

/** Take the event that follows the cursor out of those held back: `{next, rest}`. */
export function takeNext(ahead, cursor) {
  const rest = ahead.filter((event) => judge(cursor, event) === "gap");
  const next = ahead.find((event) => judge(cursor, event) === "apply") ?? null;
  return { next, rest };
}
