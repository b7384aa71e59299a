// Links in the messages of a chat. The history is searched page by page, on demand.

import { ExternalLink, Link as LinkIcon, MessageSquare } from "lucide-react";
import { useMemo } from "react";
import { useClient } from "tierchat/react";
import { buildMessagePath } from "../content/message_summary";
import { usePages } from "../data/use_pages";
import { Button, EmptyState, IconButton, SkeletonRows } from "../design";
import { useText } from "../i18n";
import { Failure } from "../page/Loadable";
import { Row, Rows } from "../page/Row";
import { navigate } from "../page/router";
import { Time } from "../page/Time";
import { listLinks } from "./message_links";

const PAGE = 200;

/** The tab "Links". */
export function LinksTab({ chat }: { chat: string }) {
  const text = useText().group;
  const { http } = useClient();
  const pages = usePages(`links ${chat}`, async (cursor) => {
    const before = cursor === undefined ? {} : { before: Number(cursor) };
    const { messages, more } = await http.call("list_messages", { chat, limit: PAGE, ...before });
    const oldest = messages[0]?.seq;
    const items = [...messages].reverse();
    return { items, next: more && oldest !== undefined ? String(oldest) : null };
  });
  const links = useMemo(() => listLinks(pages.items), [pages.items]);
  if (pages.isInitial && pages.error !== null) {
    return <Failure error={pages.error} onRetry={pages.loadMore} />;
  }
  if (pages.isInitial) return <SkeletonRows count={4} />;
  return (
    <>
      {links.length === 0 ? (
        <EmptyState icon={LinkIcon} title={text.noLinks} />
      ) : (
        <Rows label={text.tabs.links}>
          {links.map(({ url, host, seq, ts }) => (
            <Row
              key={url}
              picture={<ExternalLink size={20} aria-hidden />}
              title={host}
              text={url}
              note={<Time ms={ts / 1000} />}
              href={url}
              actions={
                <IconButton
                  icon={MessageSquare}
                  label={text.goToMessage}
                  size="s"
                  onClick={() => navigate(buildMessagePath(chat, seq))}
                />
              }
            />
          ))}
        </Rows>
      )}
      {pages.hasMore && (
        <Button variant="quiet" isBusy={pages.isLoading} onClick={pages.loadMore}>
          {text.readOlder}
        </Button>
      )}
    </>
  );
}
