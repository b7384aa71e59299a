// The picture of a post. Its space is reserved before it loads, and a click opens the viewer.

import { useState } from "react";
import { useApi } from "../data/use_load";
import { Dialog } from "../design";
import { useText } from "../i18n";
import type { FeedPost } from "./feed";
import styles from "./PostPicture.module.css";

const DEFAULT_WIDTH = 4;
const DEFAULT_HEIGHT = 3;

/** A picture below the text. */
export function PostPicture({ post, name }: { post: FeedPost; name: string }) {
  const text = useText().social;
  const [isOpen, setOpen] = useState(false);
  const [hasFailed, setFailed] = useState(false);
  const query = { user: post.user, post: post.id };
  const small = useApi("get_post_image", { ...query, thumb: 1 });
  const large = useApi("get_post_image", isOpen ? { ...query, thumb: 0 } : null);
  const { width, height } = small.data?.attachment ?? {};
  const ratio = `${width ?? DEFAULT_WIDTH} / ${height ?? DEFAULT_HEIGHT}`;
  if (small.error !== null || hasFailed)
    return <p className={styles["failed"]}>{text.pictureFailed}</p>;
  return (
    <>
      <button
        type="button"
        className={styles["picture"]}
        style={{ aspectRatio: ratio }}
        aria-label={text.picture(name)}
        onClick={() => setOpen(true)}
      >
        {small.data !== null && (
          <img src={small.data.url} alt="" loading="lazy" onError={() => setFailed(true)} />
        )}
      </button>
      {isOpen && (
        <Dialog title={text.picture(name)} size="l" onClose={() => setOpen(false)}>
          <img
            className={styles["full"]}
            src={large.data?.url ?? small.data?.url}
            alt={text.picture(name)}
            width={width ?? undefined}
            height={height ?? undefined}
          />
        </Dialog>
      )}
    </>
  );
}
