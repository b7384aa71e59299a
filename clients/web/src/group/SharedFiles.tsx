// Pictures, videos and files that were sent to a chat.

import { FileText, Image, Play } from "lucide-react";
import { useState } from "react";
import type { Attachment, Http } from "tierchat";
import { useClient } from "tierchat/react";
import { Link, pathTo } from "../app/router";
import { useAttempt } from "../data/use_attempt";
import { useApi } from "../data/use_load";
import { usePages, type Pages } from "../data/use_pages";
import { Dialog, EmptyState } from "../design";
import { useText } from "../i18n";
import { formatBytes } from "../i18n/format";
import { PagesView } from "../page/Loadable";
import { Row, Rows } from "../page/Row";
import { Time } from "../page/Time";
import styles from "./SharedFiles.module.css";

/** A file and the message that it was sent with. */
interface SharedFile {
  file: Attachment;
  seq: number;
  ts: number;
}

const isMedia = ({ type }: Attachment): boolean => /^(image|video)\//.test(type);

function useFiles(chat: string): Pages<Http.Message> {
  const { http } = useClient();
  return usePages(`files ${chat}`, (cursor) =>
    http.call("list_messages_with_files", { chat, limit: 100, ...(cursor ? { cursor } : {}) }),
  );
}

function filesOf(messages: readonly Http.Message[], accept: (file: Attachment) => boolean) {
  return messages.flatMap(({ attachments = [], seq, ts, deleted }): SharedFile[] =>
    deleted === true ? [] : attachments.filter(accept).map((file) => ({ file, seq, ts })),
  );
}

/** The tab "Media": a gallery of pictures and videos. */
export function MediaTab({ chat }: { chat: string }) {
  const text = useText().group;
  const pages = useFiles(chat);
  const empty = <EmptyState icon={Image} title={text.noMedia} />;
  return (
    <PagesView of={pages} empty={empty}>
      {(messages) => {
        const media = filesOf(messages, isMedia);
        if (media.length === 0) return empty;
        return (
          <ul className={styles["gallery"]} aria-label={text.tabs.media}>
            {media.map((shared) => (
              <MediaTile key={`${shared.seq} ${shared.file.id}`} chat={chat} shared={shared} />
            ))}
          </ul>
        );
      }}
    </PagesView>
  );
}

function MediaTile({ chat, shared }: { chat: string; shared: SharedFile }) {
  const text = useText().group;
  const [isOpen, setOpen] = useState(false);
  const { file, seq } = shared;
  const hasThumb = file.thumb === true;
  const thumb = useApi("get_link", hasThumb ? { file: file.id, seq, thumb: 1 } : null);
  const full = useApi("get_link", isOpen ? { file: file.id, seq } : null);
  const isVideo = file.type.startsWith("video/");
  return (
    <li>
      <button
        type="button"
        className={styles["tile"]}
        aria-label={text.showPicture(file.name)}
        onClick={() => setOpen(true)}
      >
        {thumb.data !== null && <img src={thumb.data.url} alt="" loading="lazy" />}
        {isVideo && <Play size={24} aria-hidden />}
      </button>
      {isOpen && (
        <Dialog
          title={file.name}
          size="l"
          onClose={() => setOpen(false)}
          footer={<Link to={messagePath(chat, seq)}>{text.goToMessage}</Link>}
        >
          {full.data !== null &&
            (isVideo ? (
              <video className={styles["full"]} src={full.data.url} controls />
            ) : (
              <img className={styles["full"]} src={full.data.url} alt={file.name} />
            ))}
        </Dialog>
      )}
    </li>
  );
}

/** The tab "Files": everything that is no picture or video. */
export function FilesTab({ chat }: { chat: string }) {
  const text = useText().group;
  const client = useClient();
  const attempt = useAttempt();
  const pages = useFiles(chat);
  const empty = <EmptyState icon={FileText} title={text.noFiles} />;
  const download = ({ file, seq }: SharedFile): void =>
    void attempt(async () => {
      const blob = await client.download(file.id, { seq });
      const url = URL.createObjectURL(blob);
      const link = Object.assign(document.createElement("a"), { href: url, download: file.name });
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
    });
  return (
    <PagesView of={pages} empty={empty}>
      {(messages) => {
        const files = filesOf(messages, (file) => !isMedia(file));
        if (files.length === 0) return empty;
        return (
          <Rows label={text.tabs.files}>
            {files.map((shared) => (
              <Row
                key={`${shared.seq} ${shared.file.id}`}
                picture={<FileText size={24} aria-hidden />}
                title={<bdi>{shared.file.name}</bdi>}
                text={formatBytes(shared.file.size)}
                note={<Time ms={shared.ts / 1000} />}
                onClick={() => download(shared)}
              />
            ))}
          </Rows>
        );
      }}
    </PagesView>
  );
}

/** The path of a message in its chat. */
export function messagePath(chat: string, seq: number): string {
  return `${pathTo("/chats/:chat", { chat })}?seq=${seq}`;
}
