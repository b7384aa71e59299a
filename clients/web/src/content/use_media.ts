// Hooks for the content of files.

import { useEffect, useState } from "react";
import type { Attachment, ChatClient } from "tierchat";
import { useClient } from "tierchat/react";
import { MediaCache } from "./media_cache";

const caches = new WeakMap<ChatClient, MediaCache>();

/** Return the media cache of a client. */
export function getMediaCache(client: ChatClient): MediaCache {
  let cache = caches.get(client);
  if (cache === undefined) caches.set(client, (cache = new MediaCache(client)));
  return cache;
}

/** The content of a file: loading, loaded or failed. */
export interface Media {
  url: string | null;
  hasFailed: boolean;
}

const LOADING: Media = { url: null, hasFailed: false };

/** Load the content of a file of message `seq` (0: unsent), or its thumbnail, if `isEnabled`. */
export function useMedia(
  file: Attachment,
  seq: number,
  options: { isThumb?: boolean; isEnabled?: boolean } = {},
): Media {
  const { isThumb = false, isEnabled = true } = options;
  const client = useClient();
  const { id, type } = file;
  const [media, setMedia] = useState(LOADING);
  useEffect(() => {
    if (!isEnabled) return undefined;
    const key = { file: id, seq, type, isThumb };
    const cache = getMediaCache(client);
    let isCurrent = true;
    cache.acquire(key).then(
      (url) => isCurrent && setMedia({ url, hasFailed: false }),
      () => isCurrent && setMedia({ url: null, hasFailed: true }),
    );
    return () => {
      isCurrent = false;
      cache.release(key);
      setMedia(LOADING);
    };
  }, [client, id, seq, type, isThumb, isEnabled]);
  return media;
}

/** Save a file of message `seq` on the user's device. */
export async function saveFile(client: ChatClient, file: Attachment, seq: number): Promise<void> {
  const { url } = await client.http.call("get_link", { file: file.id, seq });
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = file.name;
  anchor.rel = "noopener noreferrer";
  anchor.click();
}
