// Messages and posts that the user saved for themselves.

import { Bookmark, BookmarkX } from "lucide-react";
import { useId } from "react";
import type { Http } from "tierchat";
import { useClient } from "tierchat/react";
import { buildMessagePath, formatMessageLine } from "../content/message_summary";
import { useAttempt } from "../data/use_attempt";
import { usePages } from "../data/use_pages";
import { EmptyState, IconButton, showToast, Tabs } from "../design";
import { PersonAvatar, PersonName } from "../directory/PersonAvatar";
import { useText } from "../i18n";
import { PagesView } from "../page/Loadable";
import { Page, Section } from "../page/Page";
import { Row, Rows } from "../page/Row";
import { navigate, useLocation } from "../page/router";
import { Time } from "../page/Time";
import { FeedView } from "./FeedView";
import { useFeed } from "./use_feed";

type Tab = "messages" | "posts";

/** The page `/saved`. */
export default function SavedPage() {
  const text = useText().social;
  const { query } = useLocation();
  const tab: Tab = query.get("tab") === "posts" ? "posts" : "messages";
  const panel = useId();
  const tabs = [
    { id: "messages" as const, label: text.savedMessages },
    { id: "posts" as const, label: text.savedPosts },
  ];
  const toolbar = (
    <Tabs
      label={text.saved}
      tabs={tabs}
      selected={tab}
      panel={panel}
      onSelect={(id) => navigate(id === "posts" ? "/saved?tab=posts" : "/saved", { replace: true })}
    />
  );
  return (
    <Page
      title={text.saved}
      subtitle={text.savedHint}
      onBack={() => navigate("/timeline")}
      isBackShown
      toolbar={toolbar}
    >
      <div id={panel} role="tabpanel" aria-label={tabs.find(({ id }) => id === tab)?.label}>
        {tab === "messages" ? <SavedMessages /> : <SavedPosts />}
      </div>
    </Page>
  );
}

function SavedPosts() {
  const text = useText().social;
  const feed = useFeed("saved");
  const empty = (
    <EmptyState icon={Bookmark} title={text.noSavedPosts}>
      {text.noSavedPostsHint}
    </EmptyState>
  );
  return <FeedView feed={feed} label={text.savedPosts} empty={empty} />;
}

const isSame = (a: Http.Message, b: Http.Message): boolean => a.chat === b.chat && a.seq === b.seq;

function SavedMessages() {
  const text = useText().social;
  const { http } = useClient();
  const attempt = useAttempt();
  const pages = usePages("saved messages", (cursor) =>
    http.call("list_favorite_messages", { limit: 50, ...(cursor ? { cursor } : {}) }),
  );
  const save = ({ message: { chat, seq } }: Http.FavoriteMessage): Promise<boolean> =>
    attempt(async () => {
      await http.call("save_message", { chat, seq });
      pages.reload();
    });
  const remove = (saved: Http.FavoriteMessage): Promise<boolean> =>
    attempt(async () => {
      const { chat, seq } = saved.message;
      await http.call("remove_saved_message", { chat, seq });
      pages.update((items) => items.filter(({ message }) => !isSame(message, saved.message)));
      showToast(text.removed, { action: { label: text.save, onSelect: () => void save(saved) } });
    });
  const empty = (
    <EmptyState icon={Bookmark} title={text.noSavedMessages}>
      {text.noSavedMessagesHint}
    </EmptyState>
  );
  return (
    <PagesView pages={pages} empty={empty}>
      {(items) => (
        <Section>
          <Rows label={text.savedMessages}>
            {items.map((saved) => (
              <SavedMessage
                key={`${saved.message.chat} ${saved.message.seq}`}
                message={saved.message}
                onRemove={() => void remove(saved)}
              />
            ))}
          </Rows>
        </Section>
      )}
    </PagesView>
  );
}

function SavedMessage({ message, onRemove }: { message: Http.Message; onRemove: () => void }) {
  const text = useText().social;
  const { chat, seq, sender } = message;
  return (
    <Row
      picture={<PersonAvatar user={sender} />}
      title={<PersonName user={sender} />}
      note={<Time ms={message.ts / 1000} />}
      text={formatMessageLine(message)}
      isLines
      to={buildMessagePath(chat, seq)}
      actions={<IconButton icon={BookmarkX} label={text.removeSaved} size="s" onClick={onRemove} />}
    />
  );
}
