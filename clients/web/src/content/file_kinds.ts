// Kinds of files, by how the client shows them.

import type { Attachment, Message } from "tierchat";

/** The way a file is shown. */
export type FileKind = "image" | "video" | "audio" | "file";

const BROWSER_IMAGES: readonly string[] = [
  "image/png",
  "image/jpeg",
  "image/gif",
  "image/webp",
  "image/avif",
  "image/bmp",
];
/** Images that only the server decodes. The client shows their thumbnails. */
const OTHER_IMAGES: readonly string[] = ["image/heic", "image/heif", "image/tiff"];
const IMAGES: ReadonlySet<string> = new Set([...BROWSER_IMAGES, ...OTHER_IMAGES]);
const TYPE_BY_EXTENSION: Readonly<Record<string, string>> = {
  avif: "image/avif",
  heic: "image/heic",
  heif: "image/heic",
  tif: "image/tiff",
  tiff: "image/tiff",
};
const VOICE_NAME = /^voice-\d+(?:-(\d{1,5})s)?\.(?:webm|ogg|m4a|mp4)$/;
/** Larger media are offered as downloads, because the client plays media from memory. */
export const MEDIA_BYTES_MAX = 64_000_000;

/** Return the kind of a file. Types that a browser could execute count as "file". */
export function getFileKind({ type, size }: Pick<Attachment, "type" | "size">): FileKind {
  const mediaType = type.split(";", 1)[0]?.trim().toLowerCase() ?? "";
  if (size > MEDIA_BYTES_MAX) return "file";
  if (IMAGES.has(mediaType)) return "image";
  if (mediaType.startsWith("video/")) return "video";
  return mediaType.startsWith("audio/") ? "audio" : "file";
}

/** Return whether browsers can only show the thumbnail of an image, not the image. */
export function hasOnlyThumbnail({ type }: Pick<Attachment, "type">): boolean {
  return OTHER_IMAGES.includes(type);
}

/** Return the type of a chosen file. Browsers report none if the system does not know it. */
export function getFileType({ name, type }: File): string {
  const extension = /\.([^.]+)$/u.exec(name)?.[1]?.toLowerCase() ?? "";
  return type || (TYPE_BY_EXTENSION[extension] ?? "");
}

/** Return whether a file was recorded as a voice message. */
export function isVoice({ name }: Pick<Attachment, "name">): boolean {
  return VOICE_NAME.test(name);
}

/** Return the names of a message's files. `voice` replaces the names of voice messages. */
export function listFileNames({ attachments = [] }: Pick<Message, "attachments">, voice: string) {
  return attachments.map((file) => (isVoice(file) ? voice : file.name)).join(", ");
}

/** Return the length of a voice message, from its name; 0: unknown. */
export function getVoiceLengthS({ name }: Pick<Attachment, "name">): number {
  return Number(VOICE_NAME.exec(name)?.[1] ?? 0);
}

/** Return the name of a new voice message. The recording itself does not contain its length. */
export function buildVoiceName(type: string, nowMs: number, lengthS: number): string {
  const extension = type.includes("ogg") ? "ogg" : type.includes("mp4") ? "m4a" : "webm";
  return `voice-${nowMs}-${Math.max(1, Math.round(lengthS))}s.${extension}`;
}

/** Return a name that the server accepts: characters that file systems forbid are replaced. */
export function cleanName(name: string): string {
  const cleaned = name
    .normalize("NFC")
    .replace(/[/\\:*?"<>|]/gu, "_")
    .replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, "")
    .trim();
  const characters = [...cleaned];
  if (characters.length <= 100) return cleaned.replace(/^\.+$/u, "") || "file";
  const extension = /\.[^.]{1,10}$/u.exec(cleaned)?.[0] ?? "";
  return characters.slice(0, 100 - extension.length).join("") + extension;
}
