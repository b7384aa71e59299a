// Files: up to S3 and where to load them from. The server says where; the content never passes it.
//
// An upload: checksum here → form from the server → the form with the file to S3 → the server looks
// at it. Of an image the thumbnail is waited for, a while.

import { fileSize } from "./format.js";
import { createCaller } from "./rest.js";

/** An upload or a link failed; the message is for people. */
export class FileFailed extends Error {}

const LOOK_MS = 10_000; // how long a thumbnail is waited for
const LOOK_STEP_MS = 2_000;
const LINK_EARLY_MS = 30_000; // a link that is about to end is not worth giving out
const LINKS_MAX = 500;
const LATER_MS = [0, 2_000, 5_000, 15_000]; // when a thumbnail that was not there is asked for
const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const OCTETS = "application/octet-stream";

/** `session()` gives `{token}`; `newId()` a fresh id; the server takes up to `bytesMax` of a file. */
export function createFiles({ session, newId, bytesMax }) {
  const links = new Map(); // what is asked for → {url, until}
  const lookups = new Map(); // id → what became of an image without a thumbnail

  const call = createCaller(session, (status, problem) =>
    new FileFailed(status === 0 ? "The server cannot be reached." : inWords(status, problem)),
  );

  /**
   * Upload a file to a chat and return the attachment that can be sent there.
   *
   * `onProgress` hears how much of it is there, 0 to 1. Rejects with `FileFailed`, or with the
   * reason of `signal`.
   */
  async function upload(chat, file, { onProgress = () => {}, signal } = {}) {
    if (file.size === 0) throw new FileFailed("This file is empty. Choose another one.");
    // Before it is read: a film of gigabytes would fill the memory of the page.
    if (file.size > bytesMax) {
      throw new FileFailed(`This file is too large: up to ${fileSize(bytesMax)} can be sent.`);
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
    const giveUp = Date.now() + LOOK_MS;
    for (;;) {
      const found = await call("POST", path, {});
      signal?.throwIfAborted();
      if (found.looked_at || Date.now() > giveUp) return found.attachment;
    }
  }

  /** Return an address from which a file of message `seq`, or its thumbnail, can be loaded. */
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
   * Return what there is by now of an image of message `seq` that was sent without a thumbnail, or
   * null: it has none, or did not get one in time. Whoever shows it asks again in vain only once.
   */
  function late(file, seq) {
    if (!IMAGES.has(file.type) || seq === null) return Promise.resolve(null);
    let found = lookups.get(file.id);
    if (found === undefined) {
      found = lookUp(file.id, seq).catch(() => {
        lookups.delete(file.id); // the network, not the file
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
  if (status === 404) return "This file is not there any more.";
  if (status === 413) return "This file is too large.";
  if (status === 429) return "Too many files wait to be sent. Send or remove some first.";
  return answer?.detail ? `The server said no: ${answer.detail}.` : `The server failed (${status}).`;
}

/** A name that the server takes: what file systems forbid is replaced. */
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
  if (crypto.subtle === undefined) throw new FileFailed("Files need a secure connection (HTTPS).");
  let content;
  try {
    content = await file.arrayBuffer();
  } catch {
    throw new FileFailed("This file cannot be read.");
  }
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Post a form to S3. Not with `fetch`, which tells nothing of how far it is. */
function postForm({ url, fields }, file, onProgress, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const failed = () => reject(new FileFailed("The upload did not arrive. Try again."));
    request.upload.onprogress = (event) => {
      if (event.lengthComputable) onProgress(event.loaded / event.total);
    };
    request.onload = () => (request.status < 300 ? resolve() : failed());
    request.onerror = failed;
    request.onabort = () => reject(signal?.reason ?? new FileFailed("The upload was stopped."));
    signal?.addEventListener("abort", () => request.abort(), { once: true });
    const form = new FormData();
    for (const [name, value] of Object.entries(fields)) form.append(name, value);
    form.append("file", file, "file");
    request.open("POST", url);
    request.send(form);
  });
}
