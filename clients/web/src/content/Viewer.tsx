// A full-window viewer of images and videos, with zoom, next and previous.

import {
  ChevronLeft,
  ChevronRight,
  Download,
  MessageSquare,
  X,
  ZoomIn,
  ZoomOut,
} from "lucide-react";
import { type KeyboardEvent, type PointerEvent, useEffect, useRef, useState } from "react";
import type { Attachment } from "tierchat";
import { useClient } from "tierchat/react";
import { IconButton, showToast } from "../design";
import { useLayer } from "../design/use_layer";
import { PersonName } from "../directory/PersonAvatar";
import { useText } from "../i18n";
import { getErrorText } from "../i18n/errors";
import { formatDateTime } from "../i18n/format";
import { FileName } from "./FileName";
import { getFileKind, hasOnlyThumbnail } from "./file_kinds";
import { useLateThumbnails } from "./late_thumbnails";
import { saveFile, useMedia } from "./use_media";
import styles from "./Viewer.module.css";

/** A file and the message that contains it. */
export interface ViewerItem {
  file: Attachment;
  seq: number;
  sender: string;
  /** The time of the message, in Unix microseconds. */
  ts: number;
}

interface ViewerProps {
  items: readonly ViewerItem[];
  /** The item shown first. */
  start: number;
  /** Called to open the message of an item. */
  onMessage: (item: ViewerItem) => void;
  onClose: () => void;
}

const ZOOM_MAX = 6;
const ZOOM_STEP = 1.4;

/** A modal viewer; render it while it is open. */
export function Viewer({ items, start, onMessage, onClose }: ViewerProps) {
  const words = useText();
  const client = useClient();
  const dialog = useRef<HTMLDialogElement>(null);
  const [index, setIndex] = useState(start);
  const [zoom, setZoom] = useState(1);
  const item = items[index];

  useEffect(() => {
    const element = dialog.current;
    const opener = document.activeElement;
    if (element !== null && !element.open) element.showModal();
    return () => {
      element?.close();
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);
  useLayer(onClose);
  if (item === undefined) return null;
  const { file, seq, sender, ts } = item;
  const isImage = getFileKind(file) === "image";

  const move = (step: number): void => {
    setIndex(Math.min(items.length - 1, Math.max(0, index + step)));
    setZoom(1);
  };
  const scale = (factor: number): void => {
    setZoom((before) => Math.min(ZOOM_MAX, Math.max(1, before * factor)));
  };
  const save = (): void => {
    saveFile(client, file, seq).catch((error: unknown) => {
      showToast(getErrorText(error, { not_found: words.content.fileFailed }), { kind: "error" });
    });
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.target instanceof HTMLVideoElement) return;
    const isRightToLeft = getComputedStyle(event.currentTarget).direction === "rtl";
    const actions: Record<string, () => void> = {
      ArrowRight: () => move(isRightToLeft ? -1 : 1),
      ArrowLeft: () => move(isRightToLeft ? 1 : -1),
      "+": () => scale(ZOOM_STEP),
      "=": () => scale(ZOOM_STEP),
      "-": () => scale(1 / ZOOM_STEP),
      "0": () => setZoom(1),
    };
    const action = actions[event.key];
    if (action === undefined || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    action();
  };
  return (
    <dialog
      ref={dialog}
      className={styles["viewer"]}
      aria-label={words.content.viewer}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onKeyDown={onKeyDown}
    >
      <header>
        <span className={styles["name"]}>
          <FileName name={file.name} />
          <span>
            <PersonName user={sender} /> · {formatDateTime(ts / 1000)}
            {items.length > 1 && ` · ${words.content.countOf(index + 1, items.length)}`}
          </span>
        </span>
        {isImage && (
          <>
            <IconButton
              icon={ZoomOut}
              label={words.content.zoomOut}
              disabled={zoom === 1}
              onClick={() => scale(1 / ZOOM_STEP)}
            />
            <IconButton
              icon={ZoomIn}
              label={words.content.zoomIn}
              disabled={zoom === ZOOM_MAX}
              onClick={() => scale(ZOOM_STEP)}
            />
          </>
        )}
        <IconButton
          icon={MessageSquare}
          label={words.content.goToMessage}
          onClick={() => onMessage(item)}
        />
        <IconButton icon={Download} label={words.content.download} onClick={save} />
        <IconButton icon={X} label={words.common.close} onClick={onClose} />
      </header>
      {isImage ? (
        <ImageView key={file.id} item={item} zoom={zoom} onScale={scale} onClose={onClose} />
      ) : (
        <VideoView key={file.id} item={item} />
      )}
      {index > 0 && (
        <span className={styles["previous"]}>
          <IconButton icon={ChevronLeft} label={words.content.previous} onClick={() => move(-1)} />
        </span>
      )}
      {index < items.length - 1 && (
        <span className={styles["next"]}>
          <IconButton icon={ChevronRight} label={words.content.next} onClick={() => move(1)} />
        </span>
      )}
    </dialog>
  );
}

interface ImageViewProps {
  item: ViewerItem;
  zoom: number;
  onScale: (factor: number) => void;
  onClose: () => void;
}

/** An image: the wheel and double clicks zoom, dragging moves it. */
function ImageView({ item: { file: sent, seq }, zoom, onScale, onClose }: ImageViewProps) {
  const words = useText().content;
  const stage = useRef<HTMLDivElement>(null);
  const [file = sent] = useLateThumbnails([sent], seq);
  const isSupported = !hasOnlyThumbnail(file);
  const full = useMedia(file, seq, { isEnabled: isSupported });
  const thumb = useMedia(file, seq, { isThumb: true, isEnabled: file.thumb === true });
  const [offset, setOffset] = useState({ x: 0, y: 0 });
  const drag = useRef<{ x: number; y: number } | null>(null);
  const latestOnScale = useRef(onScale);
  latestOnScale.current = onScale;

  useEffect(() => {
    const element = stage.current;
    const onWheel = (event: WheelEvent): void => {
      event.preventDefault(); // React's own listener cannot prevent scrolling
      latestOnScale.current(Math.exp(-event.deltaY / 400));
    };
    element?.addEventListener("wheel", onWheel, { passive: false });
    return () => element?.removeEventListener("wheel", onWheel);
  }, []);
  useEffect(() => {
    if (zoom === 1) setOffset({ x: 0, y: 0 });
  }, [zoom]);
  const onPointerMove = (event: PointerEvent): void => {
    const start = drag.current;
    if (start === null || zoom === 1) return;
    setOffset((before) => ({
      x: before.x + event.clientX - start.x,
      y: before.y + event.clientY - start.y,
    }));
    drag.current = { x: event.clientX, y: event.clientY };
  };
  const url = full.url ?? thumb.url;
  const isUnsupported = !isSupported && (file.thumb !== true || thumb.hasFailed);
  const { width, height } = file;
  return (
    <div
      ref={stage}
      className={styles["stage"]}
      data-zoomed={zoom > 1}
      onClick={(event) => {
        if (event.target === stage.current) onClose();
      }}
      onDoubleClick={() => onScale(zoom > 1 ? 0 : 2.5)}
      onPointerDown={(event) => {
        if (zoom === 1 || event.target === stage.current) return;
        drag.current = { x: event.clientX, y: event.clientY };
        event.currentTarget.setPointerCapture(event.pointerId);
      }}
      onPointerMove={onPointerMove}
      onPointerUp={() => (drag.current = null)}
    >
      {url !== null && (
        <img
          src={url}
          alt={words.image(file.name)}
          draggable={false}
          {...(width && height ? { width, height } : {})}
          style={{ transform: `translate(${offset.x}px, ${offset.y}px) scale(${zoom})` }}
        />
      )}
      {full.hasFailed && <p role="alert">{words.fileFailed}</p>}
      {isUnsupported && <p role="alert">{words.imageUnsupported}</p>}
      {url === null && !full.hasFailed && !isUnsupported && <span className={styles["spinner"]} />}
    </div>
  );
}

function VideoView({ item: { file, seq } }: { item: ViewerItem }) {
  const words = useText().content;
  const media = useMedia(file, seq);
  return (
    <div className={styles["stage"]}>
      {media.url !== null && (
        <video src={media.url} controls autoPlay playsInline aria-label={file.name} />
      )}
      {media.hasFailed && <p role="alert">{words.fileFailed}</p>}
      {media.url === null && !media.hasFailed && <span className={styles["spinner"]} />}
    </div>
  );
}
