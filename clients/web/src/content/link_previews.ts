// Link previews. The server fetches the pages.
//
// The last `PREVIEWS_MAX` addresses are cached, including those without a preview. After a
// temporary error, a preview is requested again the next time it is shown.

import { ChatError, type ChatClient } from "tierchat";

const PREVIEWS_MAX = 300;

/** The description of a page. */
export interface LinkPreviewData {
  title: string;
  description: string;
  /** The site's name, or the host of the address. */
  site: string;
  /** The URL of a picture, or null. */
  picture: string | null;
}

const known = new Map<string, Promise<LinkPreviewData | null>>();

/** Return the preview of a page, or null. Never rejects. */
export function loadLinkPreview(client: ChatClient, url: string): Promise<LinkPreviewData | null> {
  let found = known.get(url);
  if (found === undefined) {
    const forget = (error: unknown): null => {
      if (!(error instanceof ChatError) || error.isTemporary) known.delete(url);
      return null;
    };
    found = load(client, url, forget).catch(forget);
    known.set(url, found);
    dropOldest();
  }
  return found;
}

function dropOldest(): void {
  const [oldest] = known.entries();
  if (known.size <= PREVIEWS_MAX || oldest === undefined) return;
  known.delete(oldest[0]);
  void oldest[1].then((preview) => {
    if (preview?.picture != null) URL.revokeObjectURL(preview.picture);
  });
}

async function load(
  { http }: ChatClient,
  url: string,
  forget: (error: unknown) => null,
): Promise<LinkPreviewData | null> {
  const { title, description, site, picture } = await http.call("get_link_preview", { url });
  if (title === "") return null;
  // The picture comes from this server, so the site does not learn the reader's IP address.
  const content = picture === null ? null : await http.download(picture).catch(forget);
  const shown = content === null ? null : URL.createObjectURL(content);
  return { title, description, site: site || new URL(url).host, picture: shown };
}
