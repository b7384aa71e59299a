// The timeline: a form for a new post, and the posts of the user and of people they follow.

import { Bookmark, Newspaper } from "lucide-react";
import { Button, EmptyState, IconButton } from "../design";
import { useText } from "../i18n";
import { Page } from "../page/Page";
import { navigate } from "../page/router";
import { FeedView } from "./FeedView";
import { NewPost } from "./PostEditor";
import { useFeed } from "./use_feed";

/** The page `/timeline`. */
export default function TimelinePage() {
  const text = useText().social;
  const feed = useFeed("timeline");
  const empty = (
    <EmptyState
      icon={Newspaper}
      title={text.empty}
      action={<Button onClick={() => navigate("/people")}>{text.findPeople}</Button>}
    >
      {text.emptyHint}
    </EmptyState>
  );
  return (
    <Page
      title={text.timeline}
      subtitle={text.timelineHint}
      actions={<IconButton icon={Bookmark} label={text.saved} onClick={() => navigate("/saved")} />}
    >
      <NewPost onPosted={feed.add} />
      <FeedView feed={feed} label={text.timeline} empty={empty} />
    </Page>
  );
}
