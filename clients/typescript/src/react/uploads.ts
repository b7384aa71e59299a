// Uploads of a component: progress, errors and results.

import { useCallback, useEffect, useRef, useState } from "react";

import type { Attachment } from "../generated/frames.js";
import { useClient } from "./provider.js";

const UPLOADS_MAX = 20;

/** A file of a component that is uploaded. */
export interface Upload {
  readonly id: number;
  readonly file: Blob;
  readonly name: string;
  /** The uploaded fraction of the file, 0 to 1. */
  readonly share: number;
  /** The result, for `chat.send`. */
  readonly attachment: Attachment | null;
  readonly error: Error | null;
  /** Cancel the upload and remove it from the list. */
  readonly remove: () => void;
  /** Upload the file again, after an error. */
  readonly retry: () => void;
}

/** The uploads of a component. */
export interface Uploads {
  readonly uploads: readonly Upload[];
  /** True while a file is being uploaded. */
  readonly isUploading: boolean;
  /** Upload files, at most 20; further files are ignored. */
  readonly add: (files: Iterable<Blob>) => void;
  /** Remove the complete uploads and return their attachments, for `chat.send`. */
  readonly popAttachments: () => Attachment[];
}

/** Upload files to a chat. Uploads are canceled if the component is removed or `id` changes. */
export function useUpload(id: string): Uploads {
  const client = useClient();
  const [uploads, setUploads] = useState<readonly Upload[]>([]);
  const latest = useRef<readonly Upload[]>([]);
  const running = useRef(new Map<number, AbortController>());
  const lastId = useRef(0);

  const set = useCallback((changed: readonly Upload[]) => {
    latest.current = changed;
    setUploads(changed);
  }, []);

  useEffect(() => {
    const controllers = running.current;
    return () => {
      for (const controller of controllers.values()) controller.abort();
      controllers.clear();
      set([]);
    };
  }, [client, id, set]);

  const start = useCallback(
    (number: number, file: Blob, name: string) => {
      const controller = new AbortController();
      const { signal } = controller;
      running.current.set(number, controller);
      const change = (changes: Partial<Upload>): void => {
        if (signal.aborted) return;
        set(updateUpload(latest.current, number, changes));
      };
      const onProgress = (share: number): void => change({ share });
      client
        .chat(id)
        .upload(file, { name, signal, onProgress })
        .then(
          (attachment) => change({ attachment, share: 1 }),
          (error: Error) => change({ error }),
        )
        .finally(() => running.current.delete(number));
    },
    [client, id, set],
  );

  const add = useCallback(
    (files: Iterable<Blob>) => {
      for (const file of files) {
        if (latest.current.length >= UPLOADS_MAX) return;
        const number = (lastId.current += 1);
        const name = (file as Partial<File>).name ?? "file";
        const remove = (): void => {
          running.current.get(number)?.abort();
          set(latest.current.filter((upload) => upload.id !== number));
        };
        const retry = (): void => {
          set(updateUpload(latest.current, number, { error: null }));
          start(number, file, name);
        };
        const fields = { id: number, file, name, share: 0, attachment: null, error: null };
        set([...latest.current, { ...fields, remove, retry }]);
        start(number, file, name);
      }
    },
    [set, start],
  );

  const popAttachments = useCallback(() => {
    const complete = latest.current.filter(({ attachment }) => attachment !== null);
    set(latest.current.filter(({ attachment }) => attachment === null));
    return complete.map(({ attachment }) => attachment as Attachment);
  }, [set]);

  const isUploading = uploads.some(({ attachment, error }) => {
    return attachment === null && error === null;
  });
  return { uploads, isUploading, add, popAttachments };
}

function updateUpload(
  uploads: readonly Upload[],
  id: number,
  changes: Partial<Upload>,
): readonly Upload[] {
  return uploads.map((upload) => (upload.id === id ? { ...upload, ...changes } : upload));
}
