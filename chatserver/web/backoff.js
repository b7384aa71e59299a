// Reconnect delays and close codes. Pure: randomness is passed in.

const DELAY_MS_MIN = 500;
const DELAY_MS_MAX = 10_000;

/**
 * Return the delay before reconnect number `attempt` (0 is the first after a loss).
 *
 * Full jitter: random up to a limit that doubles, so that the clients of a crashed gateway do not
 * reconnect at the same time. Never less than the delay requested by the server.
 */
export function reconnectDelay(attempt, random, retryAfterMs = 0) {
  const bound = Math.min(DELAY_MS_MAX, DELAY_MS_MIN * 2 ** Math.min(attempt + 1, 10));
  const jittered = Math.max(DELAY_MS_MIN, random() * bound);
  return Math.round(retryAfterMs > 0 ? retryAfterMs + random() * DELAY_MS_MIN : jittered);
}

const REASONS = new Map([
  [3000, "The server is restarting."],
  [3001, "Your connection is too slow."],
  [3002, "The server is busy."],
  [3003, "The server stopped responding."],
  [3004, "This session was opened in another window."],
  [3500, "Your session has ended."],
  [3501, "This page is out of date. Reload it."],
  [3502, "This account is not allowed to connect."],
  [3503, "You have too many windows open. Close one and try again."],
  [3504, "This chat service has been suspended."],
]);

/**
 * Classify a close code: `{retry, reason, expired, replaced}`. 3000 to 3499 and the codes of the
 * WebSocket protocol are retried; 3500 to 3999 are not.
 */
export function classifyClose(code) {
  return {
    retry: code < 3500 || code > 3999,
    reason: REASONS.get(code) ?? null,
    expired: code === 3500,
    replaced: code === 3004,
  };
}
