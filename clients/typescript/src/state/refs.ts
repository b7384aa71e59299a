// References of operations.

/** Return a unique reference (idempotency key) for an operation. */
export function newRef(): string {
  // `crypto.randomUUID` exists only on pages with HTTPS.
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
