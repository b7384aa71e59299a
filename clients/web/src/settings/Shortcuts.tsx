// The list of keyboard shortcuts, and its dialog.

import { Fragment } from "react";
import { Dialog } from "../design";
import { useText } from "../i18n";
import styles from "./Shortcuts.module.css";

const IS_MAC = /Mac|iPhone|iPad/u.test(navigator.userAgent);
const ALT = IS_MAC ? "⌥" : "Alt";
const MOD = IS_MAC ? "⌘" : "Ctrl";

/** Name of the text in the catalog → one or two key combinations. */
const SHORTCUTS = {
  find: [[MOD, "K"], ["/"]],
  newChat: [[ALT, "N"]],
  otherChat: [
    [ALT, "↓"],
    [ALT, "↑"],
  ],
  newest: [[ALT, "End"]],
  move: [["↓"], ["↑"]],
  menu: [["Enter"]],
  reply: [["R"]],
  edit: [["E"]],
  copy: [["C"]],
  editLast: [["↑"]],
  send: [["Enter"]],
  newLine: [["Shift", "Enter"]],
  back: [["Esc"]],
  help: [["?"]],
} as const;

/** A list of all keyboard shortcuts. */
export function ShortcutList() {
  const text = useText().settings;
  return (
    <dl className={styles["list"]}>
      {Object.entries(SHORTCUTS).map(([name, combinations]) => (
        <div key={name}>
          <dt>{text.shortcutNames[name as keyof typeof SHORTCUTS]}</dt>
          <dd>
            {combinations.map((keys, index) => (
              <Fragment key={keys.join("+")}>
                {index > 0 && <span>{text.or}</span>}
                <bdo dir="ltr">
                  {keys.map((key) => (
                    <kbd key={key}>{key}</kbd>
                  ))}
                </bdo>
              </Fragment>
            ))}
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** The dialog that "?" opens. */
export default function ShortcutsDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title={useText().settings.shortcuts} size="m" onClose={onClose}>
      <ShortcutList />
    </Dialog>
  );
}
