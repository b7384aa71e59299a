// The files that are to go with the next message of a chat: uploaded while one still writes.

import { FileFailed } from "../files.js";
import { fileSize, plural } from "../format.js";
import { fill, h, icon, iconButton, setAria, setText } from "./dom.js";

const FILES_MAX = 10; // of one message

/** `onChange` is called when what can be sent may have changed. */
export function createTray({ files, onChange }) {
  const list = h("ul", { class: "tray", hidden: true, aria: { label: "Files to send" } });
  const status = h("p", { class: "sr-only", role: "status" });
  const limit = h("p", { class: "tray-limit", role: "alert" });
  const element = h("div", {}, list, limit, status);
  const waiting = new Map(); // chat → items
  let chat = null;
  let isAsking = false; // whether `limit` says why nothing was sent

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
    takeBack();
    onChange();
  }

  function takeBack() {
    if (!isAsking || !isReady()) return;
    isAsking = false;
    setText(limit, "");
  }

  function add(found) {
    const room = FILES_MAX - itemsOf(chat).length;
    const added = [...found].slice(0, room).map((file) => createItem(chat, file));
    waiting.set(chat, [...itemsOf(chat), ...added]);
    const isTooMany = found.length > room;
    setText(limit, isTooMany ? `A message has at most ${plural(FILES_MAX, "file")}.` : "");
    draw();
    for (const item of added) item.start();
  }

  function createItem(to, file) {
    const bar = h("progress", { class: "tray-bar", max: 1, value: 0 });
    const note = h("span", { class: "tray-note" });
    const again = h(
      "button",
      { type: "button", class: "link-button", hidden: true, on: { click: start } },
      "Try again",
    );
    const picture = file.type.startsWith("image/") ? URL.createObjectURL(file) : null;
    const face =
      picture === null
        ? h("span", { class: "tray-face" }, icon("file"))
        : h("img", { class: "tray-face", src: picture, alt: "", on: { error: showNoPicture } });
    const remove = iconButton("close", `Remove ${file.name}`, drop);
    const name = h("bdi", { class: "tray-name", title: file.name }, file.name);
    const about = h("div", { class: "tray-about" }, name, note, bar, again);
    const element_ = h("li", { class: "tray-item" }, face, about, remove);
    function showNoPicture() {
      face.replaceWith(h("span", { class: "tray-face" }, icon("file")));
    }
    const item = { element: element_, attachment: null, isFailed: false, start, drop };
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
        setText(status, `${file.name} is uploaded.`);
      } catch (problem) {
        if (abort.signal.aborted) return;
        item.isFailed = true;
        again.hidden = false;
        const words = problem instanceof FileFailed ? problem.message : "The upload failed.";
        setText(note, words);
        setText(status, `${file.name}: ${words}`);
      }
      bar.hidden = true;
      element_.classList.toggle("is-failed", item.isFailed);
      takeBack();
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

  /** Say why nothing was sent. */
  function askToWait() {
    const isFailed = itemsOf(chat).some((item) => item.isFailed);
    const words = isFailed
      ? "A file could not be uploaded. Try it again, or remove it; then send."
      : "The files are still being uploaded. Wait a moment, then send.";
    setText(limit, words);
    isAsking = true;
  }

  /** Return the attachments of the next message, and forget them. */
  function take() {
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
    take,
    askToWait,
    /** Whether there are files, and all of them can be sent. */
    get isEmpty() {
      return itemsOf(chat).length === 0;
    },
    get isReady() {
      return isReady();
    },
  };
}
