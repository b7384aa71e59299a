// Attachments: upload to S3 and download links. The content never passes through the server.
//
// Upload: compute the checksum → request a form from the server → post it with the file to S3 → the
// server checks the file. For an image, wait a while for its thumbnail.

import { fileSize } from "./format.js";
import { createCaller } from "./http_client.js";

/** A failed upload or download; the message is shown to users. */
export class FileFailed extends Error {}

const LOOK_MS = 10_000; // maximum wait for a thumbnail
const LOOK_STEP_MS = 2_000;
const LINK_EARLY_MS = 30_000; // links this close to expiry are renewed
const LINKS_MAX = 500;
const LATER_MS = [0, 2_000, 5_000, 15_000]; // delays between lookups of a missing thumbnail
const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const OCTETS = "application/octet-stream";

/** `session()` returns `{token}`; `newId()` a new id; `bytesMax` is the server's file size limit. */
export function createFiles({ session, newId, bytesMax }) {
  const links = new Map(); // path → {url, until}
  const lookups = new Map(); // id → promise of the image's metadata with thumbnail

  const call = createCaller(session, (status, problem) =>
    new FileFailed(status === 0 ? "Can't reach the server." : inWords(status, problem)),
  );

  /**
   * Upload a file to a chat and return the attachment that can be sent there.
   *
   * `onProgress` is called with the uploaded share, 0 to 1. Rejects with `FileFailed`, or with the
   * reason of `signal`.
   */
  async function upload(chat, file, { onProgress = () => {}, signal } = {}) {
    if (file.size === 0) throw new FileFailed("This file is empty.");
    // Checked before reading: a huge file would fill the memory of the page.
    if (file.size > bytesMax) {
      throw new FileFailed(`This file is too large. The maximum size is ${fileSize(bytesMax)}.`);
    }
    const path = `/v1/chats/${encodeURIComponent(chat)}/attachments`;
    const about = {
      name: cleanName(file.name),
      type: file.type || OCTETS,
      size: file.size,
      sha256: await checksum(file),
    };
    signal?.throwIfAborted();
    const form = await call("POST", path, about, { "idempotency-key": newId() });
    signal?.throwIfAborted();
    if (form.url !== null) await postForm(form, file, onProgress, signal);
    onProgress(1);
    return finish(form.id, signal);
  }

  async function finish(id, signal) {
    const path = `/v1/attachments/${encodeURIComponent(id)}/complete?wait_ms=${LOOK_STEP_MS}`;
    const deadline = Date.now() + LOOK_MS;
    for (;;) {
      const found = await call("POST", path, {});
      signal?.throwIfAborted();
      if (found.looked_at || Date.now() > deadline) return found.attachment;
    }
  }

  /** Return the URL of a file of message `seq`, or of its thumbnail. */
  async function link(id, seq, { isThumb = false } = {}) {
    const place = seq === null ? "" : `&seq=${seq}`;
    const path = `/v1/attachments/${encodeURIComponent(id)}/link?thumb=${isThumb ? 1 : 0}${place}`;
    const known = links.get(path);
    if (known !== undefined && known.until > Date.now()) return known.url;
    const { url, expires_s: lifeS } = await call("GET", path);
    links.delete(path);
    if (links.size >= LINKS_MAX) links.delete(links.keys().next().value);
    links.set(path, { url, until: Date.now() + lifeS * 1000 - LINK_EARLY_MS });
    return url;
  }

  /**
   * Return the metadata of an image of message `seq` that was sent before its thumbnail was made,
   * or null if it has no thumbnail in time. Results are cached.
   */
  function late(file, seq) {
    if (!IMAGES.has(file.type) || seq === null) return Promise.resolve(null);
    let found = lookups.get(file.id);
    if (found === undefined) {
      found = lookUp(file.id, seq).catch(() => {
        lookups.delete(file.id); // a network error: not cached
        return null;
      });
      if (lookups.size >= LINKS_MAX) lookups.delete(lookups.keys().next().value);
      lookups.set(file.id, found);
    }
    return found;
  }

  async function lookUp(id, seq) {
    for (const pause of LATER_MS) {
      await new Promise((resolve) => setTimeout(resolve, pause));
      const path = `/v1/attachments/${encodeURIComponent(id)}/link?thumb=0&seq=${seq}`;
      const { attachment, looked_at: isSettled } = await call("GET", path);
      if (attachment.thumb) return attachment;
      if (isSettled) return null;
    }
    return null;
  }

  return { upload, link, late };
}

function inWords(status, answer) {
  if (status === 404) return "This file no longer exists.";
  if (status === 413) return "This file is too large.";
  if (status === 429) return "Too many unsent files. Send or remove some first.";
  return answer?.detail ? `Request failed: ${answer.detail}.` : `Server error (${status}).`;
}

/** A file name that the server accepts: characters that file systems forbid are replaced. */
export function cleanName(name) {
  const plain = name
    .normalize("NFC")
    .replace(/[/\\:*?"<>|]/gu, "_")
    .replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, "")
    .trim();
  const letters = [...plain];
  if (letters.length <= 100) return plain.replace(/^\.+$/u, "") || "file";
  const end = /\.[^.]{1,10}$/u.exec(plain)?.[0] ?? "";
  return letters.slice(0, 100 - end.length).join("") + end;
}

async function checksum(file) {
  if (crypto.subtle === undefined) throw new FileFailed("Sending files requires a secure connection (HTTPS).");
  let content;
  try {
    content = await file.arrayBuffer();
  } catch {
    throw new FileFailed("Can't read this file.");
  }
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Post a form to S3. `fetch` does not report upload progress. */
function postForm({ url, fields }, file, onProgress, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const failed = () => reject(new FileFailed("Upload failed. Try again."));
    request.upload.onprogress = (event) => {
      if (event.lengthComputable) onProgress(event.loaded / event.total);
    };
    request.onload = () => (request.status < 300 ? resolve() : failed());
    request.onerror = failed;
    request.onabort = () => reject(signal?.reason ?? new FileFailed("Upload canceled."));
    signal?.addEventListener("abort", () => request.abort(), { once: true });
    const form = new FormData();
    for (const [name, value] of Object.entries(fields)) form.append(name, value);
    form.append("file", file, "file");
    request.open("POST", url);
    request.send(form);
  });
}
