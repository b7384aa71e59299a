// A card for the first link of a message. It is absent until it is loaded, and if that fails.

import { memo, useEffect, useState } from "react";
import type { ChatClient } from "tierchat";
import { useClient } from "tierchat/react";
import { useText } from "../i18n";
import styles from "./content.module.css";
import { loadLinkPreview, type LinkPreviewData } from "./link_previews";

/** Loads a preview; replaced in tests of other servers. */
export type PreviewLoader = (client: ChatClient, url: string) => Promise<LinkPreviewData | null>;

interface LinkPreviewProps {
  url: string;
  load?: PreviewLoader;
}

export const LinkPreview = memo(function LinkPreview(props: LinkPreviewProps) {
  const { url, load = loadLinkPreview } = props;
  const words = useText().content;
  const client = useClient();
  const [preview, setPreview] = useState<LinkPreviewData | null>(null);
  useEffect(() => {
    let isCurrent = true;
    void load(client, url).then((found) => isCurrent && setPreview(found));
    return () => {
      isCurrent = false;
    };
  }, [client, url, load]);
  if (preview === null) return null;
  const { title, description, site, image } = preview;
  return (
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
      {image !== null && <img src={image} alt="" loading="lazy" />}
    </a>
  );
});
