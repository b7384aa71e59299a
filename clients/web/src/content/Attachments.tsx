// The files of a message: a gallery of images and videos, players, and rows of other files.

import { Download, File as FileIcon, ImageOff, Play } from "lucide-react";
import { memo, useState } from "react";
import type { Attachment } from "tierchat";
import { useClient } from "tierchat/react";
import { showToast } from "../design";
import { useText } from "../i18n";
import { getErrorText } from "../i18n/errors";
import { formatBytes } from "../i18n/format";
import { AudioPlayer } from "./AudioPlayer";
import styles from "./content.module.css";
import { FileName } from "./FileName";
import { getFileKind, hasOnlyThumbnail } from "./file_kinds";
import { computeLayout, SHOWN_MAX } from "./gallery_layout";
import { useLateThumbnails } from "./late_thumbnails";
import { saveFile, useMedia } from "./use_media";
import { VideoPreview } from "./VideoPreview";

const WIDTH_MAX = 400; // px
const SINGLE_HEIGHT_MAX = 400;

interface AttachmentsProps {
  files: readonly Attachment[];
  /** The seq of the message that has the files. */
  seq: number;
  /** Called to open an image or video in the viewer. */
  onOpen: (file: Attachment) => void;
}

/** All files of a message. Their sizes in the layout are known before they are loaded. */
export const Attachments = memo(function Attachments({ files, seq, onOpen }: AttachmentsProps) {
  const visual = files.filter((file) => ["image", "video"].includes(getFileKind(file)));
  const others = files.filter((file) => !visual.includes(file));
  return (
    <>
      {visual.length > 0 && <Gallery files={visual} seq={seq} onOpen={onOpen} />}
      {others.map((file) =>
        getFileKind(file) === "audio" ? (
          <AudioPlayer key={file.id} file={file} seq={seq} />
        ) : (
          <FileRow key={file.id} file={file} seq={seq} />
        ),
      )}
    </>
  );
});

function Gallery({ files, seq, onOpen }: AttachmentsProps) {
  const shown = useLateThumbnails(files.slice(0, SHOWN_MAX), seq);
  const { positions, height } = computeLayout(shown);
  const single = shown.length === 1 ? shown[0] : undefined;
  const width = single === undefined ? WIDTH_MAX : getSingleWidth(single, height);
  return (
    <div
      className={styles["gallery"]}
      data-gallery
      style={{ inlineSize: `${width}px`, aspectRatio: String(1 / height) }}
    >
      {shown.map((file, index) => {
        const position = positions[index];
        if (position === undefined) return null;
        const hidden = index === SHOWN_MAX - 1 ? files.length - SHOWN_MAX : 0;
        return (
          <div
            key={file.id}
            className={styles["tile"]}
            style={{
              insetInlineStart: `${position.x * 100}%`,
              insetBlockStart: `${(position.y / height) * 100}%`,
              inlineSize: `${position.width * 100}%`,
              blockSize: `${(position.height / height) * 100}%`,
            }}
          >
            <Tile file={file} seq={seq} hidden={hidden} onOpen={onOpen} />
          </div>
        );
      })}
    </div>
  );
}

/** Return the width of a single image: small ones are not enlarged, tall ones are narrowed. */
function getSingleWidth({ width }: Attachment, height: number): number {
  const natural = Math.max(160, width ?? WIDTH_MAX);
  return Math.round(Math.min(WIDTH_MAX, natural, SINGLE_HEIGHT_MAX / height));
}

interface TileProps {
  file: Attachment;
  seq: number;
  /** The number of files without a tile. */
  hidden: number;
  onOpen: (file: Attachment) => void;
}

function Tile({ file, seq, hidden, onOpen }: TileProps) {
  const words = useText().content;
  const isVideo = getFileKind(file) === "video";
  const isThumb = file.thumb === true;
  const isThumbNeeded = isVideo || hasOnlyThumbnail(file);
  const media = useMedia(file, seq, { isThumb, isEnabled: isThumb || !isThumbNeeded });
  const label = isVideo ? words.openVideo(file.name) : words.openImage(file.name);
  return (
    <>
      {isVideo && !isThumb && <VideoPreview file={file} seq={seq} />}
      <button
        type="button"
        aria-label={hidden > 0 ? `${label}, ${words.moreImages(hidden)}` : label}
        onClick={() => onOpen(file)}
      >
        {media.url !== null && <img src={media.url} alt="" draggable={false} />}
        {(media.hasFailed || (!isVideo && !isThumb && isThumbNeeded)) && <ImageOff aria-hidden />}
        {isVideo && (
          <span className={styles["play"]}>
            <Play size={22} aria-hidden />
          </span>
        )}
        {hidden > 0 && <span className={styles["hidden"]}>+{hidden}</span>}
      </button>
    </>
  );
}

function FileRow({ file, seq }: { file: Attachment; seq: number }) {
  const words = useText().content;
  const client = useClient();
  const [isBusy, setBusy] = useState(false);
  const size = formatBytes(file.size);
  const save = async (): Promise<void> => {
    setBusy(true);
    try {
      await saveFile(client, file, seq);
    } catch (error) {
      showToast(getErrorText(error, { not_found: words.fileFailed }), { kind: "error" });
    } finally {
      setBusy(false);
    }
  };
  return (
    <button type="button" className={styles["file"]} disabled={isBusy} onClick={() => void save()}>
      <span className="visually-hidden">{words.download} </span>
      <span className={styles["fileIcon"]}>
        <FileIcon size={20} aria-hidden />
        <Download size={20} aria-hidden />
      </span>
      <span className="visually-hidden">{words.download}</span>
      <span className={styles["fileAbout"]}>
        <FileName name={file.name} />
        <span>{size}</span>
      </span>
    </button>
  );
}
