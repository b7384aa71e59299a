// A post: author, time, text, picture and actions.

import { Bookmark, Copy, Ellipsis, Heart, Pencil, Trash2 } from "lucide-react";
import { useState } from "react";
import { useClient } from "tierchat/react";
import { copyText } from "../data/clipboard";
import { useAttempt } from "../data/use_attempt";
import { ConfirmDialog, IconButton, MenuButton, type MenuItem, showToast } from "../design";
import { PersonAvatar } from "../directory/PersonAvatar";
import { useText } from "../i18n";
import { buildPath, Link } from "../page/router";
import { Time } from "../page/Time";
import type { FeedPost } from "./feed";
import { LikesDialog } from "./LikesDialog";
import styles from "./PostCard.module.css";
import { PostEditor } from "./PostEditor";
import { PostPicture } from "./PostPicture";
import { PostText } from "./PostText";
import type { Feed } from "./use_feed";

/** A post of a feed. */
export function PostCard({ post, feed }: { post: FeedPost; feed: Feed }) {
  const words = useText();
  const text = words.social;
  const client = useClient();
  const [open, setOpen] = useState<"edit" | "delete" | "likes" | null>(null);
  const name = post.name ?? post.user;
  const profile = buildPath("/people/:user", { user: post.user });
  const isOwn = post.user === client.user;

  const attempt = useAttempt();
  const items: MenuItem[] = [
    {
      label: text.copyText,
      icon: Copy,
      onSelect: () =>
        void copyText(post.content).then((isCopied) => {
          if (isCopied) showToast(text.copied);
          else showToast(words.conversation.copyFailed, { kind: "error" });
        }),
    },
    ...(isOwn
      ? [
          { label: text.edit, icon: Pencil, onSelect: () => setOpen("edit") },
          {
            label: text.delete,
            icon: Trash2,
            isDangerous: true,
            onSelect: () => setOpen("delete"),
          },
        ]
      : []),
  ];

  return (
    <article className={styles["post"]} aria-label={text.postBy(name)}>
      <Link to={profile} className={styles["face"]} tabIndex={-1} aria-hidden>
        <PersonAvatar user={post.user} />
      </Link>
      <header className={styles["header"]}>
        <Link to={profile} className={styles["name"]}>
          <bdi>{name}</bdi>
        </Link>
        {post.name !== null && <bdi className={styles["user"]}>@{post.user}</bdi>}
        <span className={styles["time"]}>
          <Time ms={post.created} />
          {post.edited !== null && ` · ${text.edited}`}
        </span>
        <MenuButton icon={Ellipsis} label={text.menu} items={items} size="s" />
      </header>
      <div className={styles["body"]}>
        <PostText content={post.content} />
        {post.image !== null && <PostPicture post={post} name={name} />}
      </div>
      <footer className={styles["footer"]}>
        <button
          type="button"
          className={styles["like"]}
          aria-pressed={post.liked}
          aria-label={text.like(post.likes)}
          onClick={() => void attempt(() => feed.setLiked(post, !post.liked))}
        >
          <Heart size={18} aria-hidden />
        </button>
        {post.likes > 0 && (
          <button
            type="button"
            className={styles["count"]}
            aria-label={text.showLikes(post.likes)}
            onClick={() => setOpen("likes")}
          >
            {post.likes}
          </button>
        )}
        <IconButton
          icon={Bookmark}
          label={text.save}
          size="s"
          aria-pressed={post.favorite}
          className={styles["save"]}
          onClick={() => void attempt(() => feed.setSaved(post, !post.favorite))}
        />
      </footer>
      {open === "edit" && (
        <PostEditor post={post} onClose={() => setOpen(null)} onSaved={feed.replace} />
      )}
      {open === "likes" && <LikesDialog post={post} onClose={() => setOpen(null)} />}
      {open === "delete" && (
        <ConfirmDialog
          title={text.deleteTitle}
          message={text.deleteText}
          action={text.delete}
          isDangerous
          onConfirm={() =>
            attempt(async () => {
              await feed.remove(post);
              showToast(text.deleted);
            })
          }
          onClose={() => setOpen(null)}
        />
      )}
    </article>
  );
}
