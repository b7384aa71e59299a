// Files of which more is known than in their message: those that this device has just uploaded, and
// those whose thumbnail was made later.
//
// Bound: the last `FILES_MAX` files.

import type { Attachment } from "tierchat";

const FILES_MAX = 200;

const known = new Map<string, Attachment>();

/** Remember a file. */
export function putFile(file: Attachment): void {
  known.set(file.id, file);
  const [oldest] = known.keys();
  if (known.size > FILES_MAX && oldest !== undefined) known.delete(oldest);
}

/** Return a file, or null: it is as in its message. */
export function findFile(id: string): Attachment | null {
  return known.get(id) ?? null;
}
