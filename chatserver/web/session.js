// Client configuration, and sessions by demo login or token.

/** A failed login or configuration request; the message is shown to users. */
export class SessionFailed extends Error {}

const TIMEOUT_MS = 10_000;
const EARLY_MS = 30_000; // tokens this close to expiry are renewed first

async function fetchJson(path, options = {}) {
  let response;
  try {
    response = await fetch(path, {
      ...options,
      cache: "no-store",
      credentials: "omit",
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
  } catch {
    throw new SessionFailed(
      "Can't reach the server. Check that it is running, then try again.",
    );
  }
  const body = await response.json().catch(() => null);
  if (response.ok && body !== null) return body;
  throw new SessionFailed(`Request failed: ${body?.detail ?? `status ${response.status}`}.`);
}

/** Load the client settings of this installation. */
export async function fetchConfig() {
  const config = await fetchJson("/v1/client-config");
  return {
    gatewayUrl: String(config.gateway_url ?? ""),
    demoUsers: Array.isArray(config.demo_users) ? config.demo_users.map(String) : [],
    hasAccounts: config.local_accounts === true,
    canRegister: config.registration === true,
    fileBytesMax: Number(config.file_bytes_max) || Infinity,
    pushKey: typeof config.push_key === "string" ? config.push_key : null,
  };
}

/** Log in as a demo user. Only a development server allows it. */
export async function demoLogin(user) {
  const session = await fetchJson("/v1/dev/login", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ user }),
  });
  const expiresAt = session.expires_at * 1000;
  return { token: session.token, user: session.user, expiresAt, isDemo: true };
}

/** A session for a token issued elsewhere. The server reports whose it is. */
export function tokenSession(token) {
  return { token, user: null, expiresAt: null, isDemo: false };
}

export function isExpired(session, now) {
  return session.expiresAt !== null && session.expiresAt - EARLY_MS < now;
}
