// Messages that are not confirmed yet, or were refused.

import type { Attachment } from "tierchat";

/** A file of an unsent message; only its id if this device has not uploaded it. */
export type UnsentFile = Attachment | { readonly id: string; readonly name?: undefined };

/** A message that is not confirmed yet, or was refused. */
export interface Unsent {
  ref: string;
  body: string;
  replyTo: number | null;
  files: readonly UnsentFile[];
  tsMs: number;
  error: Error | null;
}

/** Return an unsent message from the fields of its operation. */
export function parseUnsent(
  ref: string,
  fields: Readonly<Record<string, unknown>>,
  tsMs: number,
  error: Error | null,
): Unsent {
  const replyTo = typeof fields["reply_to"] === "number" ? fields["reply_to"] : null;
  const ids = Array.isArray(fields["attachments"]) ? (fields["attachments"] as string[]) : [];
  const files = ids.map((id) => ({ id }));
  return { ref, body: String(fields["body"] ?? ""), replyTo, files, tsMs, error };
}

/** Return whether a message is not confirmed yet: it has no seq. */
export function isUnsent({ seq }: { seq: number }): boolean {
  return seq === Number.MAX_SAFE_INTEGER;
}
