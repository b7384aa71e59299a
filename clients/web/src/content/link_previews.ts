// Link previews from the server, which fetches pages for its users.
//
// Bounds: the last `PREVIEWS_MAX` addresses are remembered, also those without a preview.

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

interface Answer {
  title: string;
  description: string;
  site: string;
  picture: string | null;
}

const known = new Map<string, Promise<LinkPreviewData | null>>();

/** Return the preview of a page, or null. Never fails. */
export function loadLinkPreview(client: ChatClient, url: string): Promise<LinkPreviewData | null> {
  let found = known.get(url);
  if (found === undefined) {
    found = load(client, url).catch((error: unknown) => {
      if (error instanceof ChatError && error.isTemporary) known.delete(url);
      return null;
    });
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

async function load({ http }: ChatClient, url: string): Promise<LinkPreviewData | null> {
  const query = new URLSearchParams({ url }).toString();
  const answer = (await http.request("GET", `/v1/link-preview?${query}`)) as Answer;
  if (answer.title === "") return null;
  const { title, description, site } = answer;
  // From this server: the site does not learn the address of the reader.
  const content = answer.picture && (await http.download(answer.picture).catch(() => null));
  const picture = content ? URL.createObjectURL(content) : null;
  return { title, description, site: site || new URL(url).host, picture };
}
