// Modal dialogs with the native element, which traps the focus.

import { X } from "lucide-react";
import { type ReactNode, useEffect, useId, useRef, useState } from "react";
import { useText } from "../i18n";
import { Button, IconButton } from "./Button";
import { classes } from "./classes";
import styles from "./Dialog.module.css";
import { useLayer } from "./use_layer";

const FIRST_FIELD = "[data-body] :is(input, textarea, select):not([type=file], :disabled)";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ReactNode;
  /** Buttons at the bottom. */
  footer?: ReactNode;
  size?: "s" | "m" | "l";
  /** True if closing the dialog asks first once the user has entered something. */
  asksToDiscard?: boolean;
}

/** A dialog; render it while it is open. */
export function Dialog(props: DialogProps) {
  const { title, children, footer, size = "s", asksToDiscard = false } = props;
  const text = useText();
  const [isChanged, setChanged] = useState(false);
  const [isAsking, setAsking] = useState(false);
  const isAskingFirst = asksToDiscard && isChanged;
  const onClose = (): void => (isAskingFirst ? setAsking(true) : props.onClose());
  const titleId = useId();
  const element = useRef<HTMLDialogElement>(null);
  useLayer(onClose);
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
        onClose(); // for the back gesture of Android; Escape closes the layer
      }}
      onInput={() => setChanged(true)}
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
      {isAsking && (
        <ConfirmDialog
          title={text.common.discardTitle}
          message={text.common.discardMessage}
          action={text.common.discard}
          isDangerous
          onConfirm={props.onClose}
          onClose={() => setAsking(false)}
        />
      )}
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
  /** May return a promise: the dialog is busy until it settles, and closes if it succeeds. */
  onConfirm: () => unknown;
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
