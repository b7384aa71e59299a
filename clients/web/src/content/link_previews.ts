// Link previews. The server fetches the pages.
//
// The last `PREVIEWS_MAX` addresses are cached, including those without a preview. After a
// temporary error, a preview is requested again the next time it is shown.

import { type ChatClient, ChatError } from "tierchat";

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

const previews = new Map<string, Promise<LinkPreviewData | null>>();

/** Return the preview of a page, or null. Never rejects. */
export function loadLinkPreview(client: ChatClient, url: string): Promise<LinkPreviewData | null> {
  let preview = previews.get(url);
  if (preview === undefined) {
    const handleError = (error: unknown): null => {
      if (!(error instanceof ChatError) || error.isTemporary) previews.delete(url);
      return null;
    };
    preview = load(client, url, handleError).catch(handleError);
    previews.set(url, preview);
    dropOldest();
  }
  return preview;
}

function dropOldest(): void {
  const [oldest] = previews.entries();
  if (previews.size <= PREVIEWS_MAX || oldest === undefined) return;
  previews.delete(oldest[0]);
  void oldest[1].then((preview) => {
    if (preview?.picture != null) URL.revokeObjectURL(preview.picture);
  });
}

async function load(
  { http }: ChatClient,
  url: string,
  handleError: (error: unknown) => null,
): Promise<LinkPreviewData | null> {
  const { title, description, picture } = await http.call("get_link_preview", { url });
  if (title === "") return null;
  // The picture comes from this server, so the site does not learn the reader's IP address.
  const content = picture === null ? null : await http.download(picture).catch(handleError);
  const pictureUrl = content === null ? null : URL.createObjectURL(content);
  // The host, and not the name that the page gives itself: it may pose as another site.
  return { title, description, site: new URL(url).host, picture: pictureUrl };
}
