// What companions remember about the user, by REST.

import { createCaller } from "./http_client.js";
import { ModerationFailed } from "./moderation.js";

/** A failed request; the message is shown to users. */
export class MemoryFailed extends ModerationFailed {}

/** `session()` returns `{token}`. A memory is `{companion, enabled, entries}`. */
export function createCompanionMemory({ session }) {
  const call = createCaller(session, (status) => new MemoryFailed(inWords(status)));
  const path = (companion) => `/v1/me/companions/${encodeURIComponent(companion)}/memory`;

  return {
    get: (companion) => call("GET", path(companion)),
    setEnabled: (companion, enabled) => call("PATCH", path(companion), { enabled }),
    remove: (companion, entry) =>
      call("DELETE", `${path(companion)}/${encodeURIComponent(entry)}`).catch(ignoreMissing),
    removeAll: (companion) => call("DELETE", path(companion)),
  };
}

function ignoreMissing(problem) {
  if (problem.message !== GONE) throw problem;
}

const GONE = "It was already forgotten.";

function inWords(status) {
  if (status === 0) return "Can't reach the server.";
  if (status === 404) return GONE;
  if (status === 409) return "The memory was just updated. Try again.";
  if (status === 429) return "Too many requests. Wait a moment, then try again.";
  return "Something went wrong. Try again.";
}
