// Token renewal: refreshes the access token before it expires and sends it to the gateway.

const SHARE = 0.8; // of the remaining token lifetime
const WAIT_MS_MIN = 5000;
const WAIT_MS_MAX = 2 ** 31 - 1; // longer timers run at once

/**
 * Renew a session's token until `stop`.
 *
 * `session()` returns the current session; `refresh()` renews its token and returns whether it
 * succeeded; `sendToken(token)` sends it to the gateway. Failures are retried. If the token expires
 * anyway, the gateway closes the connection, which then handles the renewal.
 */
export function startTokenRenewal({ env, session, refresh, sendToken }) {
  let timer = null;

  function schedule() {
    const { expiresAt } = session();
    if (expiresAt === null) return;
    const wait = (expiresAt - env.now()) * SHARE;
    timer = env.setTimeout(renew, Math.min(WAIT_MS_MAX, Math.max(WAIT_MS_MIN, wait)));
  }

  async function renew() {
    try {
      if (await refresh()) await sendToken(session().token);
    } catch {
      // There is time for another attempt.
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
