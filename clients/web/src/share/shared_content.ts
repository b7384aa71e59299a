// What another application shared with this one: text and files, until a composer has them.
//
// The service worker stores it, within bounds; see `service_worker/share_target.ts`. The chosen
// chat is in sessionStorage, so that a reload of the page does not lose the choice.

// The names that the service worker uses, which has no module in common with the page.
const SHARED = "shared-content";
const ABOUT = "/shared-content"; // the text and the names of the files, `<ABOUT>/<index>`
const CHOSEN = "tierchat.share";

/** Shared content. */
export interface SharedContent {
  text: string;
  files: File[];
}

/** Return what is waiting for a chat, or for a chosen one; null: nothing. */
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

/** Let the content wait for the composer of a chat; null: no chat is chosen. */
export function chooseChat(chat: string | null): void {
  if (chat === null) sessionStorage.removeItem(CHOSEN);
  else sessionStorage.setItem(CHOSEN, chat);
}

/** Delete what is waiting. */
export async function dropSharedContent(): Promise<void> {
  chooseChat(null);
  if ("caches" in globalThis) await caches.delete(SHARED);
}
