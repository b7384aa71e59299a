// File transfer: uploads to S3 and downloads from S3, with links from the HTTP API.
//
// Steps of an upload: compute the checksum, request a form from the API, post the form with the
// file to S3, and have the API check the file. For an image, wait up to `THUMBNAIL_MS` for its
// thumbnail.

import type { Attachment, NewAttachment, Upload } from "../generated/http.js";
import { ChatError } from "../state/errors.js";
import { newRef } from "../state/refs.js";
import type { HttpClient } from "./http_client.js";
import { computeSha256 } from "./sha256.js";

const THUMBNAIL_MS = 10_000; // maximum wait for a thumbnail
const POLL_MS = 2_000;
const DEFAULT_TYPE = "application/octet-stream";

/** Options of an upload. */
export interface UploadOptions {
  /** File name; by default that of a `File`. */
  name?: string;
  /**
   * Called with the uploaded fraction, 0 to 1. Without `XMLHttpRequest` (Node, Deno), it is called
   * only with 0 and 1.
   */
  onProgress?: (share: number) => void;
  /** Cancels the upload. */
  signal?: AbortSignal;
}

/** Upload a file to a chat; return an attachment that can be sent there. */
export function uploadFile(
  http: HttpClient,
  chat: string,
  file: Blob,
  options: UploadOptions = {},
): Promise<Attachment> {
  const requestForm = (body: NewAttachment, key: string) =>
    http.call("begin_upload", { chat, body }, key);
  return upload(http, requestForm, file, options);
}

/** Upload a picture for a post, a profile or a group, which refers to it by its `id`. */
export function uploadPicture(
  http: HttpClient,
  file: Blob,
  options: UploadOptions = {},
): Promise<Attachment> {
  const requestForm = (body: NewAttachment, key: string) =>
    http.call("begin_picture", { body }, key);
  return upload(http, requestForm, file, options);
}

async function upload(
  http: HttpClient,
  requestForm: (body: NewAttachment, key: string) => Promise<Upload>,
  file: Blob,
  options: UploadOptions,
): Promise<Attachment> {
  const { onProgress = () => {}, signal } = options;
  if (file.size === 0) throw new ChatError("bad_request", "file: must not be empty");
  const name = options.name ?? (file as Partial<File>).name ?? "file";
  const sha256 = await computeSha256(await file.arrayBuffer());
  signal?.throwIfAborted();
  const body = { name, type: file.type || DEFAULT_TYPE, size: file.size, sha256 };
  const started = await requestForm(body, newRef());
  signal?.throwIfAborted();
  onProgress(0);
  if (started.url != null) await postForm(started.url, started.fields, file, onProgress, signal);
  onProgress(1);
  const deadlineMs = Date.now() + THUMBNAIL_MS;
  for (;;) {
    const uploaded = await http.call("complete_upload", { file: started.id, wait_ms: POLL_MS });
    signal?.throwIfAborted();
    if (uploaded.looked_at || Date.now() > deadlineMs) return uploaded.attachment;
  }
}

/** Download a file of message `seq`, or its thumbnail. */
export async function downloadFile(
  http: HttpClient,
  file: string,
  options: { seq?: number; isThumb?: boolean } = {},
): Promise<Blob> {
  const message = options.seq === undefined ? {} : { seq: options.seq };
  const thumb = options.isThumb === true ? { thumb: 1 } : {};
  const { url } = await http.call("get_link", { file, ...message, ...thumb });
  const response = await fetch(url).catch((cause: unknown) => {
    throw new ChatError("unavailable", "the file store does not respond", { cause });
  });
  if (!response.ok) throw new ChatError("unavailable", `download failed: HTTP ${response.status}`);
  return response.blob();
}

async function postForm(
  url: string,
  fields: Record<string, string>,
  file: Blob,
  onProgress: (share: number) => void,
  signal?: AbortSignal,
): Promise<void> {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.append(name, value);
  form.append("file", file, "file");
  if (typeof XMLHttpRequest === "function") return postWithProgress(url, form, onProgress, signal);
  let response: Response;
  try {
    response = await fetch(url, { method: "POST", body: form, ...(signal ? { signal } : {}) });
  } catch (cause) {
    if (signal?.aborted) throw signal.reason;
    throw new ChatError("unavailable", "the file store does not respond", { cause });
  }
  if (!response.ok) throw createUploadError(response.status);
}

/** Post a form with XMLHttpRequest: `fetch` does not report upload progress. */
function postWithProgress(
  url: string,
  form: FormData,
  onProgress: (share: number) => void,
  signal?: AbortSignal,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.upload.onprogress = (event) => {
      if (event.lengthComputable) onProgress(event.loaded / event.total);
    };
    request.onload = () => {
      if (request.status < 300) resolve();
      else reject(createUploadError(request.status));
    };
    request.onerror = () => {
      reject(new ChatError("unavailable", "the file store does not respond"));
    };
    request.onabort = () => reject(signal?.reason as Error);
    signal?.addEventListener("abort", () => request.abort(), { once: true });
    request.open("POST", url);
    request.send(form);
  });
}

function createUploadError(status: number): ChatError {
  return new ChatError("unavailable", `upload failed: the file store returned HTTP ${status}`);
}
