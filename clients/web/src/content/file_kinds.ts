// Kinds of files, by how the client shows them.

import type { Attachment } from "tierchat";

/** The way a file is shown. */
export type FileKind = "image" | "video" | "audio" | "file";

const IMAGES: ReadonlySet<string> = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const VOICE_NAME = /^voice-\d+\.(webm|ogg|m4a|mp4)$/;
/** Larger media are offered as downloads, because the client plays media from memory. */
export const MEDIA_BYTES_MAX = 64_000_000;

/** Return the kind of a file. Types that a browser could execute count as "file". */
export function kindOf({ type, size }: Pick<Attachment, "type" | "size">): FileKind {
  const plain = type.split(";", 1)[0]?.trim().toLowerCase() ?? "";
  if (size > MEDIA_BYTES_MAX) return "file";
  if (IMAGES.has(plain)) return "image";
  if (plain.startsWith("video/")) return "video";
  return plain.startsWith("audio/") ? "audio" : "file";
}

/** Return whether a file was recorded as a voice message. */
export function isVoice({ name }: Pick<Attachment, "name">): boolean {
  return VOICE_NAME.test(name);
}

/** Return the name of a new voice message of this type. */
export function voiceName(type: string, nowMs: number): string {
  const ending = type.includes("ogg") ? "ogg" : type.includes("mp4") ? "m4a" : "webm";
  return `voice-${nowMs}.${ending}`;
}

/** Return a name that the server accepts: characters that file systems forbid are replaced. */
export function cleanName(name: string): string {
  const plain = name
    .normalize("NFC")
    .replace(/[/\\:*?"<>|]/gu, "_")
    .replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, "")
    .trim();
  const letters = [...plain];
  if (letters.length <= 100) return plain.replace(/^\.+$/u, "") || "file";
  const ending = /\.[^.]{1,10}$/u.exec(plain)?.[0] ?? "";
  return letters.slice(0, 100 - ending.length).join("") + ending;
}
