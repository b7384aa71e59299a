// First path segments of all pages. They must match `CLIENT_PAGES` in `static_files.py`.

/** The first path segments for which the server serves the client. */
export const PAGES = [
  "chats",
  "companions",
  "moderation",
  "operations",
  "people",
  "saved",
  "search",
  "settings",
  "share",
  "timeline",
] as const;

/** A path of the client, such as `/chats/:chat`. */
export type PagePath = `/${(typeof PAGES)[number]}${"" | `/${string}`}`;
