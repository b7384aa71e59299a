// Content that another application has shared: text and files, until they are in a composer.
//
// The service worker stores it, within bounds; see `service_worker/share_target.ts`. The chosen
// chat is in sessionStorage, so that it survives a reload.

import { tabStorage } from "../data/browser_storage";

// The same names as in the service worker, which cannot import modules of the page.
const CACHE_NAME = "shared-content";
const INDEX_PATH = "/shared-content"; // the text, and the names of the files `<path>/<number>`
const CHAT_KEY = "tierchat.share";

/** Shared content. */
export interface SharedContent {
  text: string;
  files: File[];
}

/**
 * Return whether this page may receive shares: the system opens the window of the installed
 * application. In a tab, a form of another site can have sent the content.
 */
export function canReceiveShares(): boolean {
  return !matchMedia("(display-mode: browser)").matches;
}

/** Return the shared content, or null; with `chat`, only if it is for that chat. */
export async function findSharedContent(chat?: string): Promise<SharedContent | null> {
  if (chat !== undefined && tabStorage.get(CHAT_KEY) !== chat) return null;
  if (!("caches" in globalThis) || !(await caches.has(CACHE_NAME))) return null;
  const cache = await caches.open(CACHE_NAME);
  const index = await cache.match(INDEX_PATH);
  if (index === undefined) return null;
  const { text, names } = (await index.json()) as { text: string; names: string[] };
  const files: File[] = [];
  for (const [number, name] of names.entries()) {
    const content = await (await cache.match(`${INDEX_PATH}/${number}`))?.blob();
    if (content !== undefined) files.push(new File([content], name, { type: content.type }));
  }
  return { text, files };
}

/** Choose the chat for the content; null: no chat. */
export function chooseChat(chat: string | null): void {
  if (chat === null) tabStorage.remove(CHAT_KEY);
  else tabStorage.set(CHAT_KEY, chat);
}

/** Delete the shared content. */
export async function dropSharedContent(): Promise<void> {
  chooseChat(null);
  if ("caches" in globalThis) await caches.delete(CACHE_NAME).catch(() => {}); // refused: none
}
