// The first picture of a video and its length. Only the beginning of the file is loaded.

import { useState } from "react";
import type { Attachment } from "tierchat";
import { useApi } from "../data/use_load";
import styles from "./content.module.css";
import { formatDuration } from "./durations";
import { useMedia } from "./use_media";

const FIRST_S = 0.1; // the first frame is often black

/** Shows a video of message `seq` (0: unsent), without controls. */
export function VideoPreview({ file, seq }: { file: Attachment; seq: number }) {
  const link = useApi("get_link", seq === 0 ? null : { file: file.id, seq });
  const unsent = useMedia(file, seq, { isEnabled: seq === 0 });
  const [lengthS, setLength] = useState(0);
  const url = link.data?.url ?? unsent.url;
  if (url === null) return null;
  return (
    <>
      <video
        src={`${url}#t=${FIRST_S}`}
        crossOrigin="anonymous" // the viewer fetches the same URL, maybe from the HTTP cache
        preload="metadata"
        muted
        playsInline
        tabIndex={-1}
        aria-hidden
        onLoadedMetadata={({ currentTarget: { duration } }) => {
          setLength(Number.isFinite(duration) ? duration : 0); // unknown for recordings
        }}
      />
      {lengthS > 0 && <span className={styles["length"]}>{formatDuration(lengthS)}</span>}
    </>
  );
}
