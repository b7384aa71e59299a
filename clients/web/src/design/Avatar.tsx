// The picture of a person or chat; without a picture, initials on a color that depends on the id.

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
  const [failedSrc, setFailedSrc] = useState<string | null>(null);
  const hue = getHue(id);
  return (
    <span className={classes(styles["avatar"], styles[size])} data-hue={hue} aria-hidden>
      {src != null && src !== failedSrc ? (
        <img src={src} alt="" draggable={false} loading="lazy" onError={() => setFailedSrc(src)} />
      ) : (
        getInitials(name)
      )}
      {isOnline !== undefined && <span className={styles["dot"]} data-online={isOnline} />}
    </span>
  );
}

/** Return the hue of an id, 0 to 11. */
export function getHue(id: string): number {
  // FNV-1a, with its upper bits mixed in. The start value gives the demo users different hues.
  let hash = 0x811c9dd8;
  for (let index = 0; index < id.length; index += 1) {
    hash = Math.imul(hash ^ id.charCodeAt(index), 0x01000193);
  }
  return ((hash ^ (hash >>> 15)) >>> 0) % 12;
}

/** Return one or two letters of a name. */
export function getInitials(name: string): string {
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
