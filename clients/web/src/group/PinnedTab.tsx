// The pinned messages of a chat.

import { Pin, PinOff } from "lucide-react";
import { useCallback } from "react";
import type { Http } from "tierchat";
import { useClient, useEvent } from "tierchat/react";
import { buildMessagePath, formatMessageLine } from "../content/message_summary";
import { useAttempt } from "../data/use_attempt";
import { usePages } from "../data/use_pages";
import { EmptyState, IconButton, showToast } from "../design";
import { PersonAvatar, PersonName } from "../directory/PersonAvatar";
import { useText } from "../i18n";
import { PagesView } from "../page/Loadable";
import { Row, Rows } from "../page/Row";
import { Time } from "../page/Time";

/** The tab "Pinned". */
export function PinnedTab({ info, canUnpin }: { info: Http.ChatInfo; canUnpin: boolean }) {
  const text = useText().group;
  const client = useClient();
  const attempt = useAttempt();
  const { chat } = info;
  const pages = usePages(`pins ${chat}`, (cursor) =>
    client.http.call("list_pins", { chat, limit: 100, ...(cursor ? { cursor } : {}) }),
  );
  const { reload } = pages;
  const onPins = useCallback(
    (event: { chat: string }) => {
      if (event.chat === chat) reload();
    },
    [chat, reload],
  );
  useEvent("pinsChanged", onPins);
  const unpin = (seq: number): void =>
    void attempt(async () => {
      await client.chat(chat).unpin(seq);
      pages.update((items) => items.filter(({ message }) => message.seq !== seq));
      showToast(text.unpinned);
    });
  const empty = (
    <EmptyState icon={Pin} title={text.noPinned}>
      {text.noPinnedHint}
    </EmptyState>
  );
  return (
    <PagesView pages={pages} empty={empty}>
      {(items) => (
        <Rows label={text.tabs.pinned}>
          {items.map(({ message }) => (
            <Row
              key={message.seq}
              picture={<PersonAvatar user={message.sender} size="s" />}
              title={<PersonName user={message.sender} />}
              note={<Time ms={message.ts / 1000} />}
              text={formatMessageLine(message)}
              isLines
              to={buildMessagePath(chat, message.seq)}
              actions={
                canUnpin && (
                  <IconButton
                    icon={PinOff}
                    label={text.unpin}
                    size="s"
                    onClick={() => unpin(message.seq)}
                  />
                )
              }
            />
          ))}
        </Rows>
      )}
    </PagesView>
  );
}
