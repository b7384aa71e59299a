// Short messages at the bottom, such as the result of an action.

import { X } from "lucide-react";
import { useEffect, useSyncExternalStore } from "react";
import { useText } from "../i18n";
import { IconButton } from "./Button";
import styles from "./Toast.module.css";

interface Toast {
  id: number;
  message: string;
  kind: "info" | "error";
  action?: { label: string; onSelect: () => void } | undefined;
  isKept: boolean;
}

/** Options of a toast. `isKept`: it is shown until the user closes it. */
interface ToastOptions {
  kind?: "info" | "error";
  action?: { label: string; onSelect: () => void };
  isKept?: boolean;
}

const SHOWN_MS = 6_000;
const TOASTS_MAX = 3;

let toasts: readonly Toast[] = [];
let lastId = 0;
const listeners = new Set<() => void>();

function set(next: readonly Toast[]): void {
  toasts = next.slice(-TOASTS_MAX);
  for (const listener of listeners) listener();
}

/** Show a message for a few seconds. */
export function showToast(message: string, options: ToastOptions = {}): void {
  lastId += 1;
  const { kind = "info", action, isKept = false } = options;
  const others = toasts.filter((toast) => toast.message !== message);
  set([...others, { id: lastId, message, kind, action, isKept }]);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Shows the toasts. Must be rendered once. */
export function Toaster() {
  const shown = useSyncExternalStore(subscribe, () => toasts);
  return (
    <div className={styles["toaster"]} role="status" aria-live="polite">
      {shown.map((toast) => (
        <ToastView key={toast.id} toast={toast} />
      ))}
    </div>
  );
}

function ToastView({ toast }: { toast: Toast }) {
  const text = useText();
  const close = (): void => set(toasts.filter(({ id }) => id !== toast.id));
  useEffect(() => {
    if (toast.isKept) return undefined;
    const timer = setTimeout(() => set(toasts.filter(({ id }) => id !== toast.id)), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [toast.id, toast.isKept]);
  const { action } = toast;
  return (
    <div className={styles["toast"]} data-kind={toast.kind}>
      <span>{toast.message}</span>
      {action !== undefined && (
        <button
          type="button"
          className={styles["action"]}
          onClick={() => {
            close();
            action.onSelect();
          }}
        >
          {action.label}
        </button>
      )}
      <IconButton icon={X} label={text.common.dismiss} size="s" onClick={close} />
    </div>
  );
}
