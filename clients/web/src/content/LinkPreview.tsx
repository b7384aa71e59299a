// A card for the first link of a message, shown once it is loaded.

import { type ReactNode, useEffect, useState } from "react";
import { useClient } from "tierchat/react";
import { useText } from "../i18n";
import styles from "./content.module.css";
import { type LinkPreviewData, loadLinkPreview } from "./link_previews";

interface LinkPreviewProps {
  url: string;
  /** Content after the card. */
  tail: ReactNode;
}

export function LinkPreview({ url, tail }: LinkPreviewProps) {
  const words = useText().content;
  const client = useClient();
  const [preview, setPreview] = useState<LinkPreviewData | null>(null);
  useEffect(() => {
    let isCurrent = true;
    void loadLinkPreview(client, url).then((loaded) => isCurrent && setPreview(loaded));
    return () => {
      isCurrent = false;
    };
  }, [client, url]);
  if (preview === null) return null;
  const { title, description, site, picture } = preview;
  return (
    <>
      <a
        className={styles["preview"]}
        href={url}
        target="_blank"
        rel="noopener noreferrer nofollow"
        aria-label={`${words.linkPreview(site)}: ${title}`}
      >
        <span className={styles["previewText"]}>
          <span className={styles["site"]}>{site}</span>
          <strong dir="auto">{title}</strong>
          {description !== "" && <span dir="auto">{description}</span>}
        </span>
        {picture !== null && <img src={picture} alt="" />}
      </a>
      {tail}
    </>
  );
}
