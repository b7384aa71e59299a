// The picture of a person or chat, or initials on a color that depends on the id.

import { useState } from "react";
import styles from "./Avatar.module.css";
import { classes } from "./classes";

interface AvatarProps {
  /** The id of a user or chat, which determines the color. */
  id: string;
  /** The display name, for initials. */
  name: string;
  /** URL of the picture. */
  src?: string | null;
  size?: "xs" | "s" | "m" | "l" | "xl";
  /** Whether the user is online; undefined: unknown, no dot. */
  isOnline?: boolean | undefined;
}

/** A round picture. It is decorative, because the name is next to it. */
export function Avatar({ id, name, src, size = "m", isOnline }: AvatarProps) {
  const [failed, setFailed] = useState<string | null>(null);
  const hue = hueOf(id);
  return (
    <span className={classes(styles["avatar"], styles[size])} data-hue={hue} aria-hidden>
      {src != null && src !== failed ? (
        <img src={src} alt="" draggable={false} loading="lazy" onError={() => setFailed(src)} />
      ) : (
        initialsOf(name)
      )}
      {isOnline !== undefined && <span className={styles["dot"]} data-online={isOnline} />}
    </span>
  );
}

/** Return one of twelve hues; the same id always has the same hue. */
export function hueOf(id: string): number {
  let hash = 0x811c9dc5; // FNV-1a, with its upper bits mixed in
  for (let index = 0; index < id.length; index += 1) {
    hash = Math.imul(hash ^ id.charCodeAt(index), 0x01000193);
  }
  return ((hash ^ (hash >>> 15)) >>> 0) % 12;
}

/** Return one or two letters of a name. */
export function initialsOf(name: string): string {
  const words = name
    .trim()
    .split(/[\s_.-]+/u)
    .filter(Boolean);
  const letters = [words[0], words.length > 1 ? words.at(-1) : undefined];
  return letters
    .map((word) => [...(word ?? "")][0] ?? "")
    .join("")
    .toLocaleUpperCase();
}
