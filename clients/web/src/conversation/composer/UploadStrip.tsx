// The files of the message, above the text: previews and upload progress.

import { File as FileIcon, RotateCcw, X } from "lucide-react";
import { useEffect, useState } from "react";
import type { Upload } from "tierchat/react";
import { FileName } from "../../content/FileName";
import { getFileKind, hasOnlyThumbnail } from "../../content/file_kinds";
import { IconButton } from "../../design";
import { type Catalog, useText } from "../../i18n";
import { getErrorText } from "../../i18n/errors";
import { formatBytes } from "../../i18n/format";
import styles from "./Composer.module.css";
import type { Files } from "./use_files";

export function UploadStrip({ files }: { files: Files }) {
  if (files.uploads.length === 0) return null;
  return (
    <ul className={styles["uploads"]}>
      {files.uploads.map((upload) => (
        <UploadItem key={upload.id} upload={upload} />
      ))}
    </ul>
  );
}

function UploadItem({ upload }: { upload: Upload }) {
  const words = useText().conversation;
  const { name, file, share, attachment, error } = upload;
  const picture = usePicture(file);
  const percent = Math.round(share * 100);
  const isRunning = attachment === null && error === null;
  return (
    <li data-failed={error !== null || undefined}>
      {picture !== null ? <img src={picture} alt="" /> : <FileIcon size={20} aria-hidden />}
      <span className={styles["about"]}>
        <FileName name={name} />
        {error === null ? (
          <span>{formatBytes(file.size)}</span>
        ) : (
          <span role="alert">{words.uploadFailed(getErrorReason(error, file.type, words))}</span>
        )}
        {isRunning && (
          <progress value={percent} max={100} aria-label={words.uploading(name, percent)} />
        )}
      </span>
      {error !== null && (
        <IconButton
          icon={RotateCcw}
          size="s"
          label={words.retryUpload(name)}
          onClick={() => upload.retry()}
        />
      )}
      <IconButton
        icon={X}
        size="s"
        label={words.removeFile(name)}
        onClick={() => upload.remove()}
      />
    </li>
  );
}

/** Return the text for an upload error. */
function getErrorReason(error: Error, type: string, words: Catalog["conversation"]): string {
  return getErrorText(error, { [`content: is not ${type}`]: words.fileOfOtherType(type) });
}

/** Return an object URL for an image file; null for other files. */
function usePicture(file: Blob): string | null {
  const [url, setUrl] = useState<string | null>(null);
  useEffect(() => {
    if (getFileKind(file) !== "image" || hasOnlyThumbnail(file)) return undefined;
    const created = URL.createObjectURL(file);
    setUrl(created);
    return () => URL.revokeObjectURL(created);
  }, [file]);
  return url;
}
