// Payload of an access token: its renewal time and its user.
//
// The client cannot verify the signature, but a wrong time only costs an extra request or a
// reconnect, and the gateway rejects a wrong user.

const SHARE = 0.8; // fraction of the token lifetime after which a new one is fetched
const WAIT_S_MIN = 0.5;

/** Return the delay after which a new token must be replaced; null if it cannot be read. */
export function renewalWaitS(token: string): number | null {
  const { iat, exp } = decodePayload(token);
  if (typeof iat !== "number" || typeof exp !== "number") return null;
  return Math.max(WAIT_S_MIN, (exp - iat) * SHARE);
}

/** Return the user of a token; null if it cannot be read. */
export function findUser(token: string): string | null {
  const { sub } = decodePayload(token);
  return typeof sub === "string" ? sub : null;
}

function decodePayload(token: string): Record<string, unknown> {
  const payload = token.split(".")[1] ?? "";
  try {
    const text = atob(payload.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
    const decoded: unknown = JSON.parse(new TextDecoder().decode(bytes));
    return typeof decoded === "object" && decoded !== null ? { ...decoded } : {};
  } catch {
    return {};
  }
}
