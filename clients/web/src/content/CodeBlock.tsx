// A block of code with its language and a button that copies it.

import { Check, Copy } from "lucide-react";
import { useEffect, useState } from "react";
import { copyText } from "../data/clipboard";
import { IconButton } from "../design";
import { useText } from "../i18n";
import styles from "./content.module.css";

const SHOWN_MS = 2_000;

export function CodeBlock({ language, text }: { language: string; text: string }) {
  const words = useText().content;
  const [isCopied, setCopied] = useState(false);
  useEffect(() => {
    if (!isCopied) return undefined;
    const timer = setTimeout(() => setCopied(false), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [isCopied]);
  const copy = (): void => {
    void copyText(text).then(setCopied);
  };
  return (
    <figure className={styles["block"]} dir="ltr">
      <figcaption>
        <span>{language}</span>
        <IconButton
          icon={isCopied ? Check : Copy}
          label={isCopied ? words.copied : words.copyCode}
          size="s"
          onClick={copy}
        />
      </figcaption>
      <pre tabIndex={0} role="group" aria-label={language || undefined}>
        <code>{text}</code>
      </pre>
    </figure>
  );
}
