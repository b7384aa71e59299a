// A file name in one line. If it is too long, its middle is left out, so that the extension is
// visible.

import styles from "./content.module.css";

const END_CHARS = 9;

export function FileName({ name }: { name: string }) {
  const characters = [...name];
  const end = Math.max(0, characters.length - END_CHARS);
  return (
    <bdi className={styles["fileName"]}>
      <span>{characters.slice(0, end).join("")}</span>
      <span>{characters.slice(end).join("")}</span>
    </bdi>
  );
}
