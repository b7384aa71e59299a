// What another application shared with this one: text and files, until a chat takes them.
//
// The service worker stores it, within bounds; see `service_worker/share_target.ts`.

// The names that the service worker uses, which has no module in common with the page.
const SHARED = "shared-content";
const ABOUT = "/shared-content"; // the text and the names of the files, `<ABOUT>/<index>`

/** Shared content. */
export interface SharedContent {
  text: string;
  files: File[];
}

let chosen: (SharedContent & { chat: string }) | null = null; // for the composer of this chat

/** Return what is waiting for a chat; null: nothing. */
export async function findSharedContent(): Promise<SharedContent | null> {
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

/** Give the content to the composer of a chat, which is opened next. */
export async function chooseChat(content: SharedContent, chat: string): Promise<void> {
  chosen = { ...content, chat };
  await dropSharedContent();
}

/** Delete what is waiting. */
export async function dropSharedContent(): Promise<void> {
  if ("caches" in globalThis) await caches.delete(SHARED);
}

/** Return what was chosen for a chat, once. */
export function takeSharedContent(chat: string): SharedContent | null {
  if (chosen?.chat !== chat) return null;
  const taken = chosen;
  chosen = null;
  return taken;
}
