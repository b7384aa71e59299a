// Data export and account deletion, by REST.

import { call } from "./account.js";

/** The newest export: `{state, progress, url?, why?}`; null if there is none. */
export function findExport(token) {
  return call("GET", "/v1/me/export", { token, expect: [404] });
}

export function startExport(token) {
  return call("POST", "/v1/me/export", { token });
}

/** Delete the account permanently; the response identifies the receipt. */
export function eraseAccount(token, password) {
  return call("DELETE", "/v1/me", { token, body: { password } });
}
