// Texts for errors of the server. Its own texts are English and for developers: they are logged,
// and never shown.

import { ChatError } from "tierchat";
import { type Catalog, getText } from ".";

type Texts = Catalog["common"]["errors"];

/** A part of the server's text → the text for the user. A test checks that the server has them. */
export const DETAILS: readonly (readonly [part: string, key: keyof Texts["details"]])[] = [
  ["password: must be at least", "passwordShort"],
  ["password: must be at most", "passwordLong"],
  ["password: must not contain", "passwordCharacters"],
  ["password: too easy to guess", "passwordEasy"],
  ["password: too common", "passwordCommon"],
  ["wrong password", "passwordWrong"],
  ["user name or password is wrong", "loginWrong"],
  ["user: this name is already taken", "usernameTaken"],
  ["user: must be 3 to 32 characters", "username"],
  ["user: contains uppercase letters", "username"],
  ["user: must be another user", "otherUser"],
  ["members: must include another user", "otherUser"],
  ["members: must be at most", "groupFull"],
  ["chat: must have at most", "groupFull"],
  [" groups, the maximum", "tooManyGroups"],
  [" direct chats, the maximum", "tooManyChats"],
  ["role: a chat must have an owner", "noOwner"],
  ["reply_to: the chat has no message", "replyGone"],
  ["emoji: must be one emoji", "noEmoji"],
  ["attachments: must be at most", "tooManyFiles"],
  ["content: must have", "fileChanged"],
  ["content: SHA-256 does not match", "fileChanged"],
  ["must not be empty", "empty"],
  ["must not contain control", "characters"],
  ["must not contain line breaks", "characters"],
  ["combining marks in a row", "characters"],
  ["search: this server has no search index", "noSearch"],
  ["picture: this server does not accept", "noPictures"],
];
const FIELD = /^([a-z][a-z0-9_.]*)(?:, [a-z0-9_., ]+)?: /;

/** Return the text of an error for the user. `texts`: error detail or code → text. */
export function getErrorText(
  error: unknown,
  texts: Readonly<Record<string, string>> = {},
  { errors } = getText().common,
): string {
  if (!(error instanceof ChatError)) {
    console.error(error); // a fault of this client
    return errors.internal;
  }
  const text = texts[error.message] ?? texts[error.code] ?? findDetail(error.message, errors);
  if (text !== undefined) return text;
  console.info(`${error.code}: ${error.message}`);
  switch (error.code) {
    case "unavailable":
      return errors.unavailable;
    case "overloaded":
      return errors.overloaded;
    case "unauthenticated":
      return errors.unauthenticated;
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
    case "bad_request": {
      const field = FIELD.exec(error.message)?.[1];
      return field === undefined ? errors.invalid : errors.invalidField(findLabel(field, errors));
    }
    default:
      return errors.internal;
  }
}

/** Return the text for a known detail, with the first number in it; undefined for others. */
function findDetail(message: string, { details }: Texts): string | undefined {
  const key = DETAILS.find(([part]) => message.includes(part))?.[1];
  if (key === undefined) return undefined;
  const text: string | ((count: number) => string) = details[key];
  if (typeof text === "string") return text;
  return text(Number((/\d[\d,]*/.exec(message)?.[0] ?? "0").replaceAll(",", "")));
}

/** Return the label of a field; unknown fields of forms for operators keep their name. */
function findLabel(field: string, { fields }: Texts): string {
  return (fields as Readonly<Record<string, string>>)[field] ?? field;
}
