// A setting that is on or off.

import { useId } from "react";
import styles from "./Switch.module.css";

interface SwitchProps {
  label: string;
  hint?: string | undefined;
  isOn: boolean;
  isDisabled?: boolean;
  onChange: (isOn: boolean) => void;
}

/** A row with a label and a switch. */
export function Switch({ label, hint, isOn, isDisabled = false, onChange }: SwitchProps) {
  const id = useId();
  return (
    <label className={styles["row"]}>
      <span className={styles["text"]}>
        <span>{label}</span>
        {hint !== undefined && (
          <span id={id} className={styles["hint"]}>
            {hint}
          </span>
        )}
      </span>
      <input
        type="checkbox"
        role="switch"
        className={styles["switch"]}
        checked={isOn}
        disabled={isDisabled}
        aria-describedby={hint === undefined ? undefined : id}
        onChange={(event) => onChange(event.target.checked)}
      />
    </label>
  );
}
