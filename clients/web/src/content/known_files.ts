// Files that this device has just uploaded: shown before the server confirms their message.
//
// Bound: the last `FILES_MAX` files.

import type { Attachment } from "tierchat";

const FILES_MAX = 200;

const known = new Map<string, Attachment>();

/** Remember an uploaded file. */
export function rememberFile(file: Attachment): void {
  known.set(file.id, file);
  const [oldest] = known.keys();
  if (known.size > FILES_MAX && oldest !== undefined) known.delete(oldest);
}

/** Return an uploaded file, or null after a reload. */
export function findFile(id: string): Attachment | null {
  return known.get(id) ?? null;
}
