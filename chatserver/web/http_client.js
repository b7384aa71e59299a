// HTTP API calls with the token of the session. `fail(status, problem)` creates the caller's error;
// status 0 means that the server is unreachable.

const CALL_MS = 15_000;

/** `session()` returns `{token}`. Calls resolve to the response's JSON, or null without a body. */
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
