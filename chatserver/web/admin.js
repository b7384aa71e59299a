// Metrics, audit findings and cost of the installation, by REST. For admins.

import { createCaller } from "./http_client.js";

/** A failed request; the message is shown to users. `isForbidden`: a retry cannot help. */
export class AdminFailed extends Error {
  constructor(message, isForbidden) {
    super(message);
    this.isForbidden = isForbidden;
  }
}

/** `session()` returns `{token}`. */
export function createAdmin({ session }) {
  const call = createCaller(
    session,
    (status, problem) => new AdminFailed(inWords(status, problem), status === 401 || status === 403),
  );
  return {
    isAdmin: async () => (await call("GET", "/v1/me")).is_admin === true,
    /** Current state of all processes, and the data points after a time (ms). */
    overview: (after) => call("GET", `/v1/admin/overview?after=${after}`),
    audit: () => call("GET", "/v1/admin/audit"),
    cost: () => call("GET", "/v1/admin/cost"),
  };
}

function inWords(status, problem) {
  if (status === 0) return "The API is not responding. Check that `chatserver api` is running.";
  if (status === 401) return "Your session has ended. Log in again.";
  if (status === 403) return "Only admins can view this page.";
  if (status === 429) return "Too many requests. Retrying in a moment.";
  if (status === 503) {
    return `A data store is not responding (${problem?.detail ?? "unavailable"}). Run \`chatserver doctor\`.`;
  }
  return `The API returned status ${status}. See its log for details.`;
}
