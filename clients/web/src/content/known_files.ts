// Files with newer details than in their message: files that this device has uploaded, and files
// with a thumbnail that was created after the send. Bound: the last `FILES_MAX` files.

import type { Attachment } from "tierchat";

const FILES_MAX = 200;

const files = new Map<string, Attachment>();

/** Add or replace a file. */
export function putFile(file: Attachment): void {
  files.set(file.id, file);
  const [oldest] = files.keys();
  if (files.size > FILES_MAX && oldest !== undefined) files.delete(oldest);
}

/** Return a file, or null if there are no newer details. */
export function findFile(id: string): Attachment | null {
  return files.get(id) ?? null;
}
