// One line of text for a message, for lists and notifications.

import type { Attachment, Message } from "tierchat";
import type { Catalog } from "../i18n";
import { truncate } from "../i18n/graphemes";

const CHARS_MAX = 200;

/** Return the preview of a message. */
export function getPreview(message: Message, text: Catalog): string {
  if (message.deleted === true) return text.chats.deleted;
  const [first] = message.attachments ?? [];
  const body = stripMarkdown(message.body);
  if (first === undefined) return body;
  const label = getFileLabel(first, text);
  return body === "" ? label : `${label}: ${body}`;
}

function getFileLabel({ type, name }: Attachment, text: Catalog): string {
  if (type.startsWith("image/")) return text.chats.photo;
  if (type.startsWith("video/")) return text.chats.video;
  if (type.startsWith("audio/")) return text.chats.voice;
  return name || text.chats.file;
}

/** Return the beginning of a text, on one line and without Markdown formatting. */
export function stripMarkdown(body: string): string {
  const plain = body
    .slice(0, CHARS_MAX * 2)
    .replace(/```\w*\n?/g, "")
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replace(/(^|\s)(?:[#>]+|[-*+])\s+/g, "$1")
    .replace(/(\*\*|__|~~|`)(.+?)\1/g, "$2")
    .replace(/\s+/g, " ")
    .trim();
  return truncate(plain, CHARS_MAX);
}
