// The posts of a feed, with a button that shows new posts.

import { ArrowUp } from "lucide-react";
import { type ReactNode, useRef } from "react";
import { useText } from "../i18n";
import { PagesView } from "../page/Loadable";
import styles from "./FeedView.module.css";
import { PostCard } from "./PostCard";
import type { Feed } from "./use_feed";

interface FeedViewProps {
  feed: Feed;
  label: string;
  empty: ReactNode;
  errors?: Readonly<Record<string, string>>;
}

/** A feed with infinite scrolling. */
export function FeedView({ feed, label, empty, errors }: FeedViewProps) {
  const text = useText().social;
  const top = useRef<HTMLDivElement>(null);
  const showNewPosts = (): void => {
    feed.showNew();
    top.current?.scrollIntoView({ block: "start", behavior: "smooth" });
  };
  return (
    <div className={styles["box"]} ref={top}>
      {feed.newCount > 0 && (
        <div className={styles["pill"]} role="status">
          <button type="button" onClick={showNewPosts}>
            <ArrowUp size={16} aria-hidden />
            {text.newPosts(feed.newCount)}
          </button>
        </div>
      )}
      <PagesView
        pages={feed.pages}
        empty={empty}
        skeleton={<PostSkeletons />}
        {...(errors ? { errors } : {})}
      >
        {(posts) => (
          <div className={styles["feed"]} role="feed" aria-label={label}>
            {posts.map((post) => (
              <PostCard key={post.id} post={post} feed={feed} />
            ))}
          </div>
        )}
      </PagesView>
    </div>
  );
}

function PostSkeletons() {
  const text = useText();
  return (
    <div className={styles["feed"]} role="status" aria-label={text.common.loading}>
      {[3, 2, 4].map((lines, index) => (
        <div key={index} className={styles["skeleton"]} aria-hidden>
          <span className={styles["circle"]} />
          {Array.from({ length: lines }, (_, line) => (
            <span key={line} className={styles["line"]} />
          ))}
        </div>
      ))}
    </div>
  );
}
