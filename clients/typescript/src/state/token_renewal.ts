// Reads the payload of an access token: the renewal time and the user.
//
// The client cannot verify the signature. A wrong time only costs an extra request or a reconnect,
// and the gateway rejects a wrong user.

const RENEWAL_FRACTION = 0.8; // of the token lifetime
const DELAY_S_MIN = 0.5;

/** Return the delay after which a new token must be renewed, in seconds; null if unreadable. */
export function getRenewalDelayS(token: string): number | null {
  const { iat, exp } = decodePayload(token);
  if (typeof iat !== "number" || typeof exp !== "number") return null;
  return Math.max(DELAY_S_MIN, (exp - iat) * RENEWAL_FRACTION);
}

/** Return the user of a token; null if it is unreadable. */
export function findUser(token: string): string | null {
  const { sub } = decodePayload(token);
  return typeof sub === "string" ? sub : null;
}

function decodePayload(token: string): Record<string, unknown> {
  const payload = token.split(".")[1] ?? "";
  try {
    const text = atob(payload.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(text, (character) => character.charCodeAt(0));
    const decoded: unknown = JSON.parse(new TextDecoder().decode(bytes));
    return typeof decoded === "object" && decoded !== null ? { ...decoded } : {};
  } catch {
    return {};
  }
}
