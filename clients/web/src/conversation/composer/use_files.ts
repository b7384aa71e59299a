// The files of the composer: validation, upload, and the attachments of the next message.

import { useCallback, useEffect, useMemo, useRef } from "react";
import type { Attachment } from "tierchat";
import { type Upload, useClient, useUpload } from "tierchat/react";
import { cleanName, getFileType, hasOnlyThumbnail } from "../../content/file_kinds";
import { putFile } from "../../content/known_files";
import { getMediaCache } from "../../content/use_media";
import { showToast } from "../../design";
import { getText } from "../../i18n";
import { formatBytes } from "../../i18n/format";
import type { ConversationModel } from "../model/conversation_model";

/** Maximum number of files per message. */
export const FILES_MAX = 10;

/** The files of the next message. */
export interface Files {
  readonly uploads: readonly Upload[];
  readonly isUploading: boolean;
  /** Upload files. `isSentAlone`: send them as a separate message after the upload. */
  readonly add: (files: readonly File[], options?: { isSentAlone?: boolean }) => void;
  /** Remove the complete uploads and return their attachments. */
  readonly popAttachments: () => Attachment[];
}

/** Return the files of a conversation's composer. `bytesMax`: the server's limit for a file. */
export function useFiles(model: ConversationModel, bytesMax: number): Files {
  const client = useClient();
  const { uploads, isUploading, add: upload, popAttachments: pop } = useUpload(model.chat.id);
  const count = useRef(0);
  const voiceNames = useRef(new Set<string>());
  count.current = uploads.length;

  const add = useCallback<Files["add"]>(
    (files, options = {}) => {
      const words = getText().conversation;
      const showError = (text: string): void => showToast(text, { kind: "error" });
      const accepted: File[] = [];
      for (const file of files) {
        if (count.current + accepted.length >= FILES_MAX) {
          showError(words.tooManyFiles(FILES_MAX));
          break;
        }
        if (file.size === 0) showError(words.fileEmpty);
        else if (file.size > bytesMax) showError(words.fileTooLarge(formatBytes(bytesMax)));
        else accepted.push(new File([file], cleanName(file.name), { type: getFileType(file) }));
      }
      if (options.isSentAlone === true) {
        for (const { name } of accepted) voiceNames.current.add(name);
      }
      upload(accepted);
    },
    [upload, bytesMax],
  );
  const popAttachments = useCallback(() => {
    voiceNames.current.clear();
    return pop();
  }, [pop]);

  // Cache uploaded files, so that they need no download.
  const processed = useRef(new WeakSet<Attachment>());
  useEffect(() => {
    for (const { attachment, file } of uploads) {
      if (attachment === null || processed.current.has(attachment)) continue;
      processed.current.add(attachment);
      putFile(attachment);
      if (!hasOnlyThumbnail(attachment)) getMediaCache(client).put(attachment.id, file);
    }
    const isDone = uploads.length === 1 && uploads[0]?.attachment != null;
    if (isDone && voiceNames.current.has(uploads[0]?.name ?? "")) {
      model.send({ attachments: popAttachments() });
    }
  }, [uploads, client, model, popAttachments]);

  return useMemo(
    () => ({ uploads, isUploading, add, popAttachments }),
    [uploads, isUploading, add, popAttachments],
  );
}
