// Texts for errors of the server.

import { ChatError } from "tierchat";
import { getText } from "../i18n";

/** Return the text of an error for the user. `texts`: error detail or code → text. */
export function getErrorText(error: unknown, texts: Readonly<Record<string, string>> = {}): string {
  const { errors } = getText().common;
  if (!(error instanceof ChatError)) return errors.other(String(error));
  const text = texts[error.message] ?? texts[error.code];
  if (text !== undefined) return text;
  switch (error.code) {
    case "unavailable":
    case "overloaded":
      return errors.unavailable;
    case "forbidden":
      return errors.forbidden;
    case "not_found":
      return errors.notFound;
    case "too_large":
      return errors.tooLarge;
    case "conflict":
      return errors.conflict;
    case "rate_limited":
      return errors.rateLimited(Math.max(1, Math.ceil((error.retryAfterMs ?? 1000) / 1000)));
    default:
      return errors.other(error.message.replace(/^\w+: /u, "").replace(/\.$/, ""));
  }
}
