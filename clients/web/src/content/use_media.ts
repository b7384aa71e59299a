// Hooks for the content of files.

import { useEffect, useState } from "react";
import type { Attachment, ChatClient } from "tierchat";
import { useClient } from "tierchat/react";
import { MediaCache } from "./media_cache";

const caches = new WeakMap<ChatClient, MediaCache>();

/** Return the media cache of a client. */
export function mediaOf(client: ChatClient): MediaCache {
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

/** Load the content of a file of message `seq` (0: unsent), or its thumbnail, while `isWanted`. */
export function useMedia(
  file: Attachment,
  seq: number,
  options: { isThumb?: boolean; isWanted?: boolean } = {},
): Media {
  const { isThumb = false, isWanted = true } = options;
  const client = useClient();
  const { id, type } = file;
  const [media, setMedia] = useState(LOADING);
  useEffect(() => {
    if (!isWanted) return undefined;
    const key = { file: id, seq, type, isThumb };
    const cache = mediaOf(client);
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
  }, [client, id, seq, type, isThumb, isWanted]);
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
