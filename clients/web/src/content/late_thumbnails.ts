// Sizes and thumbnails of images that the server had not processed when their message was sent.

import { useEffect, useState } from "react";
import type { Attachment, ChatClient } from "tierchat";
import { useClient } from "tierchat/react";
import { getFileKind } from "./file_kinds";
import { findFile, putFile } from "./known_files";

const POLL_DELAYS_MS = [0, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000];

/** Return the files of message `seq` (0: unsent), with sizes and thumbnails once available. */
export function useLateThumbnails(files: readonly Attachment[], seq: number): Attachment[] {
  const client = useClient();
  const [, setProcessedCount] = useState(0);
  const current = files.map((file) => findFile(file.id) ?? file);
  const unprocessed = current.filter((file) => {
    return getFileKind(file) === "image" && file.thumb !== true;
  });
  const ids = seq === 0 ? "" : unprocessed.map(({ id }) => id).join(" ");
  useEffect(() => {
    if (ids === "") return undefined;
    const controller = new AbortController();
    for (const id of ids.split(" ")) {
      void waitForThumbnail(client, id, seq, controller.signal).then((isProcessed) => {
        if (isProcessed) setProcessedCount((count) => count + 1);
      });
    }
    return () => controller.abort();
  }, [client, ids, seq]);
  return current;
}

/** Poll until the server has processed a file, for about a minute; return whether it was. */
async function waitForThumbnail(
  { http }: ChatClient,
  file: string,
  seq: number,
  signal: AbortSignal,
): Promise<boolean> {
  for (const waitMs of POLL_DELAYS_MS) {
    if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs));
    if (signal.aborted) return false;
    const link = await http.call("get_link", { file, seq }).catch(() => null);
    if (link?.looked_at !== true) continue;
    putFile(link.attachment);
    return !signal.aborted;
  }
  return false;
}
