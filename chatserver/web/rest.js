// Calls of the HTTP API with the token of the session. What an error says to people, and as which
// error, is the caller's: `fail(status, problem)` makes it; status 0 is a server out of reach.

const CALL_MS = 15_000;

/** `session()` gives `{token}`. Resolves to the answer's JSON; null where it has none. */
export function createCaller(session, fail) {
  return async function call(method, path, body, headers = {}) {
    const { token } = await session();
    let response;
    try {
      response = await fetch(path, {
        method,
        headers: {
          authorization: `Bearer ${token}`,
          ...(body === undefined ? {} : { "content-type": "application/json" }),
          ...headers,
        },
        body: body === undefined ? undefined : JSON.stringify(body),
        cache: "no-store",
        credentials: "omit",
        signal: AbortSignal.timeout(CALL_MS),
      });
    } catch {
      throw fail(0, null);
    }
    const answer = await response.json().catch(() => null);
    if (!response.ok) throw fail(response.status, answer);
    return answer;
  };
}
