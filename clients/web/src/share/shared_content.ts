// Content that another application has shared: text and files, until a composer takes them over.
//
// The service worker stores it, within bounds; see `service_worker/share_target.ts`. The chosen
// chat is in sessionStorage, so that it survives a reload.

// The same names as in the service worker, which cannot import modules of the page.
const SHARED = "shared-content";
const ABOUT = "/shared-content"; // has the text and the names of the files `<ABOUT>/<index>`
const CHOSEN = "tierchat.share";

/** Shared content. */
export interface SharedContent {
  text: string;
  files: File[];
}

/** Return the shared content, or null; with `chat`, only if it is for that chat. */
export async function findSharedContent(chat?: string): Promise<SharedContent | null> {
  if (chat !== undefined && sessionStorage.getItem(CHOSEN) !== chat) return null;
  if (!("caches" in globalThis) || !(await caches.has(SHARED))) return null;
  const cache = await caches.open(SHARED);
  const about = await cache.match(ABOUT);
  if (about === undefined) return null;
  const { text, names } = (await about.json()) as { text: string; names: string[] };
  const files: File[] = [];
  for (const [index, name] of names.entries()) {
    const content = await (await cache.match(`${ABOUT}/${index}`))?.blob();
    if (content !== undefined) files.push(new File([content], name, { type: content.type }));
  }
  return { text, files };
}

/** Choose the chat for the content; null: no chat. */
export function chooseChat(chat: string | null): void {
  if (chat === null) sessionStorage.removeItem(CHOSEN);
  else sessionStorage.setItem(CHOSEN, chat);
}

/** Delete the shared content. */
export async function dropSharedContent(): Promise<void> {
  chooseChat(null);
  if ("caches" in globalThis) await caches.delete(SHARED);
}
