// Uploads of a component: progress, errors and results.

import { useCallback, useEffect, useRef, useState } from "react";

import type { Attachment } from "../generated/frames.js";
import { useClient } from "./provider.js";

const UPLOADS_MAX = 20;

/** A file that is or was uploaded. */
export interface Upload {
  readonly id: number;
  readonly file: Blob;
  readonly name: string;
  /** The uploaded share, 0 to 1. */
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
  /** Upload files; those beyond 20 are ignored. */
  readonly add: (files: Iterable<Blob>) => void;
  /** Remove the complete uploads and return their attachments, for `chat.send`. */
  readonly popAttachments: () => Attachment[];
}

/** Upload files to a chat. When the component is removed or `id` changes, uploads are canceled. */
export function useUpload(id: string): Uploads {
  const client = useClient();
  const [uploads, setUploads] = useState<readonly Upload[]>([]);
  const all = useRef<readonly Upload[]>([]);
  const running = useRef(new Map<number, AbortController>());
  const lastId = useRef(0);

  const set = useCallback((changed: readonly Upload[]) => {
    all.current = changed;
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
        set(all.current.map((each) => (each.id === number ? { ...each, ...changes } : each)));
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
        if (all.current.length >= UPLOADS_MAX) return;
        const number = (lastId.current += 1);
        const name = (file as Partial<File>).name ?? "file";
        const remove = (): void => {
          running.current.get(number)?.abort();
          set(all.current.filter((each) => each.id !== number));
        };
        const retry = (): void => {
          set(all.current.map((each) => (each.id === number ? { ...each, error: null } : each)));
          start(number, file, name);
        };
        const upload = { id: number, file, name, share: 0, attachment: null, error: null };
        set([...all.current, { ...upload, remove, retry }]);
        start(number, file, name);
      }
    },
    [set, start],
  );

  const popAttachments = useCallback(() => {
    const complete = all.current.filter(({ attachment }) => attachment !== null);
    set(all.current.filter(({ attachment }) => attachment === null));
    return complete.map(({ attachment }) => attachment as Attachment);
  }, [set]);

  const isUploading = uploads.some((each) => each.attachment === null && each.error === null);
  return { uploads, isUploading, add, popAttachments };
}
