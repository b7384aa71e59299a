// Files with newer details than in their message: files that this device has uploaded, and files
// whose thumbnail was made later. The last `FILES_MAX` files are kept.

import type { Attachment } from "tierchat";

const FILES_MAX = 200;

const known = new Map<string, Attachment>();

/** Add or replace a file. */
export function putFile(file: Attachment): void {
  known.set(file.id, file);
  const [oldest] = known.keys();
  if (known.size > FILES_MAX && oldest !== undefined) known.delete(oldest);
}

/** Return a file, or null if nothing newer than its message is known. */
export function findFile(id: string): Attachment | null {
  return known.get(id) ?? null;
}
