// When to come back after a connection ended. Pure: randomness is passed in.

const DELAY_MS_MIN = 500;
const DELAY_MS_MAX = 10_000;

/**
 * How long to wait before attempt number `attempt` (0 is the first after a loss).
 *
 * Full jitter: anything up to a bound that doubles, so that ten thousand clients of a gateway that
 * died do not come back in step. What the server asked for is never undercut.
 */
export function reconnectDelay(attempt, random, retryAfterMs = 0) {
  const bound = Math.min(DELAY_MS_MAX, DELAY_MS_MIN * 2 ** Math.min(attempt + 1, 10));
  const jittered = Math.max(DELAY_MS_MIN, random() * bound);
  return Math.round(retryAfterMs > 0 ? retryAfterMs + random() * DELAY_MS_MIN : jittered);
}

const REASONS = new Map([
  [3000, "The server is restarting."],
  [3001, "This device fell too far behind."],
  [3002, "The server is busy."],
  [3003, "The connection went silent."],
  [3004, "This session was opened a second time."],
  [3500, "Your session has ended."],
  [3501, "This page and the server do not understand each other. Reload the page."],
  [3502, "This account is not allowed to connect."],
  [3503, "You have too many windows open. Close one and try again."],
]);

/**
 * What a close code means: `{retry, reason, expired, replaced}`. 3000 to 3499 and the codes of the
 * WebSocket protocol itself come back by themselves; 3500 to 3999 do not.
 */
export function judgeClose(code) {
  return {
    retry: code < 3500 || code > 3999,
    reason: REASONS.get(code) ?? null,
    expired: code === 3500,
    replaced: code === 3004,
  };
}
