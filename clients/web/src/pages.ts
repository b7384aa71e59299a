// First segments of the paths of all pages: `CLIENT_PAGES` of the server's `static_files.py`.

/** The server sends the client below these paths. */
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
