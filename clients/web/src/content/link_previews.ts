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
  /** The address of an image on this server, or null. */
  image: string | null;
}

const known = new Map<string, Promise<LinkPreviewData | null>>();
let isSupported = true;

/** Return the preview of a page, or null. Never fails. */
export function loadLinkPreview(
  client: ChatClient,
  url: string,
): Promise<LinkPreviewData | null> {
  if (!isSupported) return Promise.resolve(null);
  let found = known.get(url);
  if (found === undefined) {
    found = load(client, url).catch((error: unknown) => {
      if (error instanceof ChatError && error.isTemporary) known.delete(url);
      return null;
    });
    known.set(url, found);
    const [oldest] = known.keys();
    if (known.size > PREVIEWS_MAX && oldest !== undefined) known.delete(oldest);
  }
  return found;
}

async function load(client: ChatClient, url: string): Promise<LinkPreviewData | null> {
  const path = `/v1/link-preview?${new URLSearchParams({ url }).toString()}`;
  const answer = (await client.http.request("GET", path).catch((error: unknown) => {
    // A server without previews has no such route.
    const isMissing = error instanceof ChatError && error.message === "HTTP 404";
    if (isMissing) isSupported = false;
    throw error;
  })) as Readonly<Record<string, unknown>>;
  const text = (name: string): string => {
    const value = answer[name];
    return typeof value === "string" ? value : "";
  };
  if (text("title") === "") return null;
  const image = text("image");
  return {
    title: text("title"),
    description: text("description"),
    site: text("site_name") || new URL(url).host,
    image: image.startsWith("/") ? image : null, // only from this server
  };
}
