// The figures of the installation, what the audit found and what it costs, by REST. For admins.

import { createCaller } from "./rest.js";

/** A request failed; the message is for people. `isForbidden`: asking again will not help. */
export class AdminFailed extends Error {
  constructor(message, isForbidden) {
    super(message);
    this.isForbidden = isForbidden;
  }
}

/** `session()` gives `{token}`. */
export function createAdmin({ session }) {
  const call = createCaller(
    session,
    (status, problem) => new AdminFailed(inWords(status, problem), status === 401 || status === 403),
  );
  return {
    isAdmin: async () => (await call("GET", "/v1/me")).is_admin === true,
    /** All processes, now, and the points of the past after a time (ms). */
    overview: (after) => call("GET", `/v1/admin/overview?after=${after}`),
    audit: () => call("GET", "/v1/admin/audit"),
    cost: () => call("GET", "/v1/admin/cost"),
  };
}

function inWords(status, problem) {
  if (status === 0) return "The API does not answer. Look whether `chatserver api` runs.";
  if (status === 401) return "The session has ended. Log in again.";
  if (status === 403) return "This page is for admins of the installation.";
  if (status === 429) return "Too many requests. It goes on in a moment.";
  if (status === 503) {
    return `The API answers, a store behind it does not (${problem?.detail ?? "unavailable"}). Run \`chatserver doctor\`.`;
  }
  return `The API answered ${status}. Its log says why.`;
}
