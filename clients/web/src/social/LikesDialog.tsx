// The people who like a post.

import { useClient } from "tierchat/react";
import { usePages } from "../data/use_pages";
import { Dialog } from "../design";
import { FollowerList } from "../directory/FollowerList";
import { useText } from "../i18n";
import type { FeedPost } from "./feed";

/** A dialog with links to their profiles. */
export function LikesDialog({ post, onClose }: { post: FeedPost; onClose: () => void }) {
  const text = useText();
  const { http } = useClient();
  const pages = usePages(`likes ${post.id}`, (cursor) =>
    http.call("list_likes", { user: post.user, post: post.id, ...(cursor ? { cursor } : {}) }),
  );
  return (
    <Dialog title={text.social.likes} onClose={onClose}>
      <FollowerList
        pages={pages}
        label={text.social.likes}
        empty={text.people.noOne}
        onNavigate={onClose}
      />
    </Dialog>
  );
}
