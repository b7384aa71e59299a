// Tokens end; sessions need not. Gets a new token well before the end, and tells the gateway.

const SHARE = 0.8; // of what is left of the token's life
const WAIT_MS_MIN = 5000;
const WAIT_MS_MAX = 2 ** 31 - 1; // longer timers run at once

/**
 * Keep a session's token new, until `stop`.
 *
 * `session()` is the one in use; `refresh()` gets a newer token and says whether it could;
 * `tell(token)` brings it to the gateway. What fails is tried again; when the token has ended after
 * all, the gateway closes, and the connection sees to the rest.
 */
export function keepFresh({ env, session, refresh, tell }) {
  let timer = null;

  function schedule() {
    const { expiresAt } = session();
    if (expiresAt === null) return;
    const wait = (expiresAt - env.now()) * SHARE;
    timer = env.setTimeout(renew, Math.min(WAIT_MS_MAX, Math.max(WAIT_MS_MIN, wait)));
  }

  async function renew() {
    try {
      if (await refresh()) await tell(session().token);
    } catch {
      // Not reached, or not now: there is time for another try.
    }
    if (timer !== null) schedule();
  }

  schedule();
  return {
    stop() {
      env.clearTimeout(timer);
      timer = null;
    },
  };
}
