// The picture of a person or a chat, or initials on a color of its own.

import { useState } from "react";
import styles from "./Avatar.module.css";
import { classes } from "./classes";

interface AvatarProps {
  /** Selects the color; the id of a user or chat. */
  id: string;
  /** The display name, for initials. */
  name: string;
  /** URL of the picture. */
  src?: string | null;
  size?: "xs" | "s" | "m" | "l" | "xl";
  /** Shows a dot, if the presence is known. */
  isOnline?: boolean | undefined;
}

/** A round picture. It is decoration: the name is next to it. */
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

/** Return one of twelve hues, always the same for an id. */
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
