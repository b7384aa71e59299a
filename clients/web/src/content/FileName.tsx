// A file name in one line. If it is too long, its middle is left out, so that the extension is
// visible.

import styles from "./content.module.css";

const END_CHARS = 9;
const SHORT_CHARS = 20; // a name that fits into all lists

export function FileName({ name }: { name: string }) {
  const characters = [...name];
  if (characters.length <= SHORT_CHARS) return <bdi>{name}</bdi>;
  return (
    <bdi className={styles["fileName"]}>
      <span className="visually-hidden">{name}</span>
      <span aria-hidden>{characters.slice(0, -END_CHARS).join("")}</span>
      <span aria-hidden>{characters.slice(-END_CHARS).join("")}</span>
    </bdi>
  );
}
