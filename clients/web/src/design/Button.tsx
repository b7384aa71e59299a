// Buttons with text, and icon buttons.

import type { LucideIcon } from "lucide-react";
import type { ButtonHTMLAttributes, ReactNode, Ref } from "react";
import styles from "./Button.module.css";
import { classes } from "./classes";

interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  variant?: "primary" | "secondary" | "quiet" | "danger";
  icon?: LucideIcon;
  /** Shows a spinner and ignores clicks. */
  isBusy?: boolean;
  children: ReactNode;
  ref?: Ref<HTMLButtonElement>;
}

/** A button with text. */
export function Button({
  variant = "secondary",
  icon: Icon,
  isBusy = false,
  className,
  children,
  disabled,
  type = "button",
  ...rest
}: ButtonProps) {
  return (
    <button
      {...rest}
      type={type}
      className={classes(styles["button"], styles[variant], className)}
      disabled={disabled === true || isBusy}
      aria-busy={isBusy || undefined}
    >
      {isBusy ? <span className={styles["spinner"]} /> : Icon && <Icon size={18} aria-hidden />}
      {children}
    </button>
  );
}

interface IconButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  icon: LucideIcon;
  /** The accessible name, also shown as a tooltip. */
  label: string;
  size?: "s" | "m";
  isActive?: boolean;
  ref?: Ref<HTMLButtonElement>;
}

/** A square button with an icon. */
export function IconButton({
  icon: Icon,
  label,
  size = "m",
  isActive = false,
  className,
  type = "button",
  ...rest
}: IconButtonProps) {
  return (
    <button
      {...rest}
      type={type}
      className={classes(
        styles["icon"],
        size === "s" && styles["small"],
        isActive && styles["active"],
        className,
      )}
      aria-label={label}
      data-tooltip={label}
    >
      <Icon size={size === "s" ? 18 : 20} aria-hidden />
    </button>
  );
}
