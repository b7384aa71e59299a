// Modal dialogs with the native element, which traps the focus and closes on Escape.

import { X } from "lucide-react";
import { useEffect, useId, useRef, useState, type ReactNode } from "react";
import { useText } from "../i18n";
import { Button, IconButton } from "./Button";
import { classes } from "./classes";
import styles from "./Dialog.module.css";

const FIRST_FIELD = "[data-body] :is(input, textarea, select):not([type=file], :disabled)";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ReactNode;
  /** Buttons at the bottom. */
  footer?: ReactNode;
  size?: "s" | "m" | "l";
}

/** A dialog; render it while it is open. */
export function Dialog({ title, onClose, children, footer, size = "s" }: DialogProps) {
  const text = useText();
  const titleId = useId();
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current;
    const opener = document.activeElement;
    if (dialog !== null && !dialog.open) dialog.showModal();
    // By default, the first button has the focus, which closes the dialog.
    dialog?.querySelector<HTMLElement>(FIRST_FIELD)?.focus();
    return () => {
      dialog?.close();
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      className={classes(styles["dialog"], styles[size])}
      aria-labelledby={titleId}
      onCancel={(event) => {
        if (event.target !== element.current) return; // `cancel` of a file picker bubbles
        event.preventDefault();
        onClose();
      }}
      onMouseDown={(event) => {
        if (event.target === element.current) onClose();
      }}
    >
      <div className={styles["content"]}>
        <header className={styles["header"]}>
          <h2 id={titleId}>{title}</h2>
          <IconButton icon={X} label={text.common.close} size="s" onClick={onClose} />
        </header>
        <div className={styles["body"]} data-body>
          {children}
        </div>
        {footer != null && <footer className={styles["footer"]}>{footer}</footer>}
      </div>
    </dialog>
  );
}

interface ConfirmDialogProps {
  title: string;
  /** Explains the consequences. */
  message: ReactNode;
  /** Label of the button that confirms. */
  action: string;
  isDangerous?: boolean;
  /** The dialog is busy until this settles, and closes if it succeeds. */
  onConfirm: () => Promise<unknown> | void;
  onClose: () => void;
}

/** Asks before an action that can't be undone. `onConfirm` reports its own errors. */
export function ConfirmDialog(props: ConfirmDialogProps) {
  const { title, message, action, isDangerous = false, onConfirm, onClose } = props;
  const text = useText();
  const [isBusy, setBusy] = useState(false);
  const confirm = async (): Promise<void> => {
    setBusy(true);
    try {
      await onConfirm();
      onClose();
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog
      title={title}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>{text.common.cancel}</Button>
          <Button
            variant={isDangerous ? "danger" : "primary"}
            isBusy={isBusy}
            onClick={() => void confirm()}
          >
            {action}
          </Button>
        </>
      }
    >
      <p className={styles["message"]}>{message}</p>
    </Dialog>
  );
}
