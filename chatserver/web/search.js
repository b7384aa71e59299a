// Search in messages, by REST.

import { createCaller } from "./http_client.js";
import { ModerationFailed } from "./moderation.js";

const PAGE = 20;

/** A failed search; the message is shown to users. */
export class SearchFailed extends ModerationFailed {}

/** `session()` returns `{token}`. */
export function createSearch({ session }) {
  const call = createCaller(session, (status, problem) =>
    Object.assign(new SearchFailed(inWords(status, problem)), { status }),
  );
  return {
    /** Return a page of results, newest first: `{items: [{message, snippet}], next}`. */
    find(text, cursor = null) {
      const query = new URLSearchParams({ q: text, limit: String(PAGE) });
      if (cursor !== null) query.set("cursor", cursor);
      return call("GET", `/v1/search?${query}`);
    },
  };
}

function inWords(status, problem) {
  if (status === 0) return "Can't reach the server.";
  if (status === 400) return problem?.detail?.replace(/^q: /, "") ?? "The search is not valid.";
  if (status === 404) return "No messages found.";
  if (status === 429) return "Too many searches. Wait a moment, then try again.";
  return "Search is not available now. Try again.";
}
