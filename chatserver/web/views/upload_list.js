// Attachments of the next message of a chat, uploaded while the user is still writing.

import { FileFailed } from "../files.js";
import { fileSize, plural } from "../format.js";
import { fill, h, icon, iconButton, setAria, setText } from "./dom.js";

const FILES_MAX = 10; // of one message

/** `onChange` is called when the attachments or their upload status change. */
export function createUploadList({ files, onChange }) {
  const list = h("ul", { class: "upload-list", hidden: true, aria: { label: "Files to send" } });
  const status = h("p", { class: "sr-only", role: "status" });
  const limit = h("p", { class: "upload-limit", role: "alert" });
  const element = h("div", {}, list, limit, status);
  const waiting = new Map(); // chat → items
  let chat = null;
  let isNoticeShown = false; // whether `limit` shows why nothing was sent

  function itemsOf(id) {
    return waiting.get(id) ?? [];
  }

  function isReady() {
    return itemsOf(chat).every((item) => item.attachment !== null);
  }

  function show(id) {
    chat = id;
    draw();
  }

  function draw() {
    const items = itemsOf(chat);
    list.hidden = items.length === 0;
    fill(list, ...items.map((item) => item.element));
    clearNotice();
    onChange();
  }

  function clearNotice() {
    if (!isNoticeShown || !isReady()) return;
    isNoticeShown = false;
    setText(limit, "");
  }

  function add(found) {
    const room = FILES_MAX - itemsOf(chat).length;
    const added = [...found].slice(0, room).map((file) => createItem(chat, file));
    waiting.set(chat, [...itemsOf(chat), ...added]);
    const isTooMany = found.length > room;
    setText(limit, isTooMany ? `You can attach up to ${plural(FILES_MAX, "file")} to a message.` : "");
    draw();
    for (const item of added) item.start();
  }

  function createItem(to, file) {
    const bar = h("progress", { class: "upload-bar", max: 1, value: 0 });
    const note = h("span", { class: "upload-note" });
    const again = h(
      "button",
      { type: "button", class: "link-button", hidden: true, on: { click: start } },
      "Try again",
    );
    const picture = file.type.startsWith("image/") ? URL.createObjectURL(file) : null;
    const face =
      picture === null
        ? h("span", { class: "upload-face" }, icon("file"))
        : h("img", { class: "upload-face", src: picture, alt: "", on: { error: showNoPicture } });
    const remove = iconButton("close", `Remove ${file.name}`, drop);
    const name = h("bdi", { class: "upload-name", title: file.name }, file.name);
    const about = h("div", { class: "upload-about" }, name, note, bar, again);
    const row = h("li", { class: "upload-item" }, face, about, remove);
    function showNoPicture() {
      face.replaceWith(h("span", { class: "upload-face" }, icon("file")));
    }
    const item = { element: row, attachment: null, isFailed: false, start, drop };
    let abort = null;
    setAria(bar, { label: `Uploading ${file.name}` });

    async function start() {
      abort = new AbortController();
      item.isFailed = false;
      again.hidden = true;
      bar.hidden = false;
      setText(note, fileSize(file.size));
      onChange();
      try {
        const onProgress = (part) => (bar.value = part);
        item.attachment = await files.upload(to, file, { onProgress, signal: abort.signal });
        setText(status, `${file.name} uploaded.`);
      } catch (problem) {
        if (abort.signal.aborted) return;
        item.isFailed = true;
        again.hidden = false;
        const words = problem instanceof FileFailed ? problem.message : "Upload failed.";
        setText(note, words);
        setText(status, `${file.name}: ${words}`);
      }
      bar.hidden = true;
      row.classList.toggle("is-failed", item.isFailed);
      clearNotice();
      onChange();
    }

    function drop() {
      abort?.abort();
      forget();
      waiting.set(
        to,
        itemsOf(to).filter((each) => each !== item),
      );
      draw();
    }

    function forget() {
      if (picture !== null) URL.revokeObjectURL(picture);
    }
    item.forget = forget;
    return item;
  }

  /** Show why nothing was sent. */
  function showPending() {
    const isFailed = itemsOf(chat).some((item) => item.isFailed);
    const words = isFailed
      ? "A file couldn't be uploaded. Try again or remove it, then send."
      : "Files are still being uploaded. Wait a moment, then send.";
    setText(limit, words);
    isNoticeShown = true;
  }

  /** Return the attachments of the next message, and clear the list. */
  function takeAll() {
    const items = itemsOf(chat);
    for (const item of items) item.forget();
    waiting.delete(chat);
    setText(status, "");
    setText(limit, "");
    draw();
    return items.map((item) => item.attachment);
  }

  return {
    element,
    show,
    add,
    takeAll,
    showPending,
    get isEmpty() {
      return itemsOf(chat).length === 0;
    },
    get isReady() {
      return isReady();
    },
  };
}
