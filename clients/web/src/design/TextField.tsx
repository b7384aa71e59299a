// Text inputs with a label, a hint and an error.

import { type InputHTMLAttributes, type Ref, type TextareaHTMLAttributes, useId } from "react";
import { classes } from "./classes";
import styles from "./TextField.module.css";

interface FieldProps {
  label: string;
  /** True if the label is only for screen readers. */
  isLabelHidden?: boolean;
  hint?: string | undefined;
  error?: string | undefined;
}

type TextFieldProps = FieldProps &
  InputHTMLAttributes<HTMLInputElement> & { ref?: Ref<HTMLInputElement> };

/** A text input of one line. */
export function TextField(props: TextFieldProps) {
  const { label, isLabelHidden, hint, error, className, ...rest } = props;
  const id = useId();
  return (
    <Field id={id} {...{ label, isLabelHidden, hint, error }}>
      <input
        {...rest}
        {...buildAria(id, hint, error)}
        className={classes(styles["input"], className)}
      />
    </Field>
  );
}

type TextAreaProps = FieldProps &
  TextareaHTMLAttributes<HTMLTextAreaElement> & { ref?: Ref<HTMLTextAreaElement> };

/** A text input of several lines. */
export function TextArea(props: TextAreaProps) {
  const { label, isLabelHidden, hint, error, className, ...rest } = props;
  const id = useId();
  return (
    <Field id={id} {...{ label, isLabelHidden, hint, error }}>
      <textarea
        rows={3}
        {...rest}
        {...buildAria(id, hint, error)}
        className={classes(styles["input"], styles["area"], className)}
      />
    </Field>
  );
}

interface SelectProps<Value extends string> extends FieldProps {
  value: Value;
  options: readonly { value: Value; label: string }[];
  onChange: (value: Value) => void;
  disabled?: boolean;
}

/** A choice from a list. */
export function Select<Value extends string>(props: SelectProps<Value>) {
  const { label, isLabelHidden, hint, error, value, options, onChange, disabled } = props;
  const id = useId();
  return (
    <Field id={id} {...{ label, isLabelHidden, hint, error }}>
      <select
        {...buildAria(id, hint, error)}
        className={styles["input"]}
        value={value}
        disabled={disabled}
        onChange={(event) => onChange(event.target.value as Value)}
      >
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.label}
          </option>
        ))}
      </select>
    </Field>
  );
}

function buildAria(id: string, hint: string | undefined, error: string | undefined) {
  const isInvalid = error !== undefined && error !== "";
  const descriptionId = isInvalid ? `${id}-error` : hint === undefined ? undefined : `${id}-hint`;
  return { id, "aria-invalid": isInvalid || undefined, "aria-describedby": descriptionId };
}

function Field(
  props: { id: string; children: React.ReactNode } & {
    [name in keyof FieldProps]: FieldProps[name] | undefined;
  },
) {
  const { id, label, isLabelHidden = false, hint, error, children } = props;
  const hasError = error !== undefined && error !== "";
  return (
    <div className={styles["field"]}>
      <label htmlFor={id} className={isLabelHidden ? "visually-hidden" : styles["label"]}>
        {label}
      </label>
      {children}
      {hasError ? (
        <p id={`${id}-error`} className={styles["error"]} role="alert">
          {error}
        </p>
      ) : (
        hint !== undefined && (
          <p id={`${id}-hint`} className={styles["hint"]}>
            {hint}
          </p>
        )
      )}
    </div>
  );
}
