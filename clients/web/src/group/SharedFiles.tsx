// Pictures, videos and files that were sent to a chat.

import { Download, FileText, Image, Play } from "lucide-react";
import { useState } from "react";
import type { Attachment, Http } from "tierchat";
import { useClient } from "tierchat/react";
import { AudioPlayer } from "../content/AudioPlayer";
import { FileName } from "../content/FileName";
import { getFileKind, hasOnlyThumbnail } from "../content/file_kinds";
import { useLateThumbnails } from "../content/late_thumbnails";
import { buildMessagePath } from "../content/message_summary";
import { saveFile } from "../content/use_media";
import { VideoPreview } from "../content/VideoPreview";
import { Viewer, type ViewerItem } from "../content/Viewer";
import { useAttempt } from "../data/use_attempt";
import { useApi } from "../data/use_load";
import { type Pages, usePages } from "../data/use_pages";
import { EmptyState, IconButton } from "../design";
import { useText } from "../i18n";
import { formatBytes } from "../i18n/format";
import { PagesView } from "../page/Loadable";
import { Row, Rows } from "../page/Row";
import { navigate } from "../page/router";
import { Time } from "../page/Time";
import styles from "./SharedFiles.module.css";

const isMedia = (file: Attachment): boolean => ["image", "video"].includes(getFileKind(file));

function useFiles(chat: string): Pages<Http.Message> {
  const { http } = useClient();
  return usePages(`files ${chat}`, (cursor) =>
    http.call("list_messages_with_files", { chat, limit: 100, ...(cursor ? { cursor } : {}) }),
  );
}

function listFiles(messages: readonly Http.Message[], isAccepted: (file: Attachment) => boolean) {
  return messages.flatMap(({ attachments = [], seq, sender, ts, deleted }): ViewerItem[] =>
    deleted === true
      ? []
      : attachments.filter(isAccepted).map((file) => ({ file, seq, sender, ts })),
  );
}

/** The tab "Media": a gallery of pictures and videos. */
export function MediaTab({ chat }: { chat: string }) {
  const text = useText().group;
  const pages = useFiles(chat);
  const [open, setOpen] = useState<number | null>(null);
  const empty = <EmptyState icon={Image} title={text.noMedia} />;
  return (
    <PagesView pages={pages} empty={empty}>
      {(messages) => {
        const media = listFiles(messages, isMedia);
        if (media.length === 0) return empty;
        return (
          <>
            <ul className={styles["gallery"]} aria-label={text.tabs.media}>
              {media.map((shared, index) => (
                <MediaTile
                  key={`${shared.seq} ${shared.file.id}`}
                  shared={shared}
                  onOpen={() => setOpen(index)}
                />
              ))}
            </ul>
            {open !== null && (
              <Viewer
                items={media}
                start={open}
                onMessage={({ seq }) => navigate(buildMessagePath(chat, seq))}
                onClose={() => setOpen(null)}
              />
            )}
          </>
        );
      }}
    </PagesView>
  );
}

function MediaTile({ shared, onOpen }: { shared: ViewerItem; onOpen: () => void }) {
  const words = useText().content;
  const { seq } = shared;
  const [file = shared.file] = useLateThumbnails([shared.file], seq);
  const isVideo = getFileKind(file) === "video";
  const hasThumb = file.thumb === true;
  const address = { file: file.id, seq, ...(hasThumb ? { thumb: 1 as const } : {}) };
  const isShown = hasThumb || !(isVideo || hasOnlyThumbnail(file));
  const picture = useApi("get_link", isShown ? address : null);
  return (
    <li className={styles["item"]}>
      {isVideo && !hasThumb && <VideoPreview file={file} seq={seq} />}
      <button
        type="button"
        className={styles["tile"]}
        aria-label={isVideo ? words.openVideo(file.name) : words.openImage(file.name)}
        onClick={onOpen}
      >
        {picture.data !== null && <img src={picture.data.url} alt="" loading="lazy" />}
        {isVideo && <Play size={24} aria-hidden />}
      </button>
    </li>
  );
}

/** The tab "Files": all files except pictures and videos, with a player for audio. */
export function FilesTab({ chat }: { chat: string }) {
  const text = useText().group;
  const pages = useFiles(chat);
  const empty = <EmptyState icon={FileText} title={text.noFiles} />;
  return (
    <PagesView pages={pages} empty={empty}>
      {(messages) => {
        const files = listFiles(messages, (file) => !isMedia(file));
        if (files.length === 0) return empty;
        return (
          <Rows label={text.tabs.files}>
            {files.map((shared) => (
              <FileRow key={`${shared.seq} ${shared.file.id}`} shared={shared} />
            ))}
          </Rows>
        );
      }}
    </PagesView>
  );
}

function FileRow({ shared: { file, seq, ts } }: { shared: ViewerItem }) {
  const text = useText().content;
  const client = useClient();
  const attempt = useAttempt();
  const size = formatBytes(file.size);
  const save = (): void => void attempt(() => saveFile(client, file, seq));
  const time = <Time ms={ts / 1000} />;
  if (getFileKind(file) === "audio") {
    return (
      <li className={styles["audio"]}>
        <AudioPlayer file={file} seq={seq} />
        {time}
        <IconButton icon={Download} label={text.downloadFile(file.name, size)} onClick={save} />
      </li>
    );
  }
  return (
    <Row
      picture={<FileText size={24} aria-hidden />}
      title={<FileName name={file.name} />}
      text={size}
      note={time}
      onClick={save}
    />
  );
}
