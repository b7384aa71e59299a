// Message composer: grows with its text, keeps a draft per chat, and counts characters near the
// limit. While a message is edited, its text replaces the draft.

import { BODY_CHARS_MAX, cleanBody, oneLine, textLength } from "../format.js";
import { h, icon, iconButton, setAria, setText } from "./dom.js";
import { createUploadList } from "./upload_list.js";

const WARN_AT = BODY_CHARS_MAX - 400;
const DRAFT_MS = 300;
const PLACEHOLDER_MAX = 20; // longer names wrap on a phone

export function createComposer({ store, client, files, onSent }) {
  const uploads = createUploadList({ files, onChange: () => fit() });
  const field = h("textarea", {
    class: "composer-field",
    rows: 1,
    dir: "auto",
    autocomplete: "off",
    enterkeyhint: "send",
    aria: { label: "Message", describedby: "composer-count" },
    on: { input: onInput, keydown: onKey, blur: keepDraft, paste: onPaste },
  });
  const count = h("span", { class: "composer-count", id: "composer-count", role: "status" });
  const send = h(
    "button",
    { type: "submit", class: "send-button", title: "Send (Enter)", aria: { label: "Send" } },
    icon("send"),
  );
  const replyName = h("bdi", { class: "reply-name" });
  const replyText = h("span", { class: "reply-text", dir: "auto" });
  const replyVerb = h("span", {});
  const cancelButton = iconButton("close", "Cancel reply", () => cancel());
  const reply = h(
    "div",
    { class: "composer-reply", hidden: true },
    h("div", { class: "reply-what" }, h("span", {}, replyVerb, replyName), replyText),
    cancelButton,
  );
  const chooser = h("input", {
    type: "file",
    multiple: true,
    hidden: true,
    tabindex: -1,
    aria: { label: "Files to attach" },
    on: { change: onChosen },
  });
  const attach = iconButton("clip", "Attach files", () => chooser.click(), {
    class: "attach-button",
  });
  const box = h(
    "div",
    { class: "composer-box" },
    reply,
    uploads.element,
    h("div", { class: "composer-line" }, attach, chooser, field, count),
  );
  const element = h(
    "form",
    { class: "composer", novalidate: true, on: { submit: onSubmit } },
    box,
    send,
  );
  const replies = new Map(); // chat → row that is replied to
  const edits = new Map(); // chat → row that is edited
  let chat = null;
  let draftTimer = 0;

  function show(id, title) {
    field.placeholder = title.length > PLACEHOLDER_MAX ? "Message" : `Message ${title}`;
    if (id === chat) return;
    keepDraft();
    if (chat !== null) edits.delete(chat);
    chat = id;
    field.value = store.state.drafts.get(id) ?? "";
    uploads.show(id);
    showReply();
    fit();
  }

  function onChosen() {
    attachFiles(chooser.files);
    chooser.value = ""; // the same file may be chosen again
    field.focus();
  }

  function onPaste(event) {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    attachFiles(event.clipboardData.files);
  }

  function attachFiles(found) {
    if (chat !== null && !edits.has(chat) && found.length > 0) uploads.add(found);
  }

  /** Attach files that are dropped anywhere on `pane`. */
  function takeDrops(pane) {
    const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
    const mark = (isOver) => pane.classList.toggle("is-dropping", isOver);
    pane.addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault(); // otherwise the browser opens the file
      mark(true);
    });
    pane.addEventListener("dragleave", (event) => {
      if (!pane.contains(event.relatedTarget)) mark(false);
    });
    pane.addEventListener("drop", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      mark(false);
      attachFiles(event.dataTransfer.files);
    });
  }

  function onInput() {
    fit();
    clearTimeout(draftTimer);
    draftTimer = setTimeout(keepDraft, DRAFT_MS);
    if (edits.has(chat)) return;
    if (field.value.trim() === "") client.stopTyping();
    else client.typing(chat);
  }

  function keepDraft() {
    clearTimeout(draftTimer);
    if (chat !== null && !edits.has(chat)) client.setDraft(chat, field.value);
  }

  /** Fit the height of the field to its text; the style sheet sets the maximum. */
  function fit() {
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight}px`;
    const left = BODY_CHARS_MAX - textLength(field.value);
    const isTooLong = left < 0;
    setText(count, textLength(field.value) > WARN_AT ? countText(left) : "");
    count.classList.toggle("is-over", isTooLong);
    setAria(field, { invalid: isTooLong ? "true" : null });
    const isEmpty = cleanBody(field.value) === "" && (uploads.isEmpty || edits.has(chat));
    const isUploading = !edits.has(chat) && !uploads.isReady;
    send.disabled = isTooLong || isEmpty || isUploading;
    attach.disabled = edits.has(chat);
  }

  function onKey(event) {
    if (event.isComposing || event.keyCode === 229) return; // an input method is composing
    if (event.key === "Enter" && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      submit();
    } else if (event.key === "Escape" && (edits.has(chat) || replies.has(chat))) {
      event.preventDefault();
      event.stopPropagation();
      cancel();
    }
  }

  function onSubmit(event) {
    event.preventDefault();
    submit();
    field.focus();
  }

  function submit() {
    if (send.disabled || chat === null) {
      if (chat !== null && !edits.has(chat) && !uploads.isReady) uploads.showPending();
      return;
    }
    if (edits.has(chat)) {
      const row = edits.get(chat);
      if (cleanBody(field.value) !== row.body) client.edit(chat, row.seq, field.value);
      setEdit(null);
      return;
    }
    const answered = replies.get(chat)?.seq ?? null;
    if (!client.send(chat, field.value, answered, uploads.takeAll())) return;
    field.value = "";
    replies.delete(chat);
    showReply();
    keepDraft();
    fit();
    onSent();
  }

  function cancel() {
    if (edits.has(chat)) setEdit(null);
    else setReply(null);
  }

  /** Edit a message; null restores the draft. */
  function setEdit(row) {
    keepDraft();
    client.stopTyping();
    if (row === null) edits.delete(chat);
    else edits.set(chat, row);
    field.value = row === null ? (store.state.drafts.get(chat) ?? "") : row.body;
    showReply();
    fit();
    field.focus();
  }

  function setReply(row) {
    if (edits.has(chat)) setEdit(null);
    if (row === null) replies.delete(chat);
    else replies.set(chat, row);
    showReply();
    field.focus();
  }

  function showReply() {
    const edited = edits.get(chat);
    const row = edited ?? replies.get(chat);
    const what = edited === undefined ? "Cancel reply" : "Cancel editing (Esc)";
    setText(replyVerb, edited === undefined ? "Reply to " : "Edit message");
    cancelButton.title = what;
    setAria(cancelButton, { label: what });
    send.title = edited === undefined ? "Send (Enter)" : "Save (Enter)";
    setAria(send, { label: edited === undefined ? "Send" : "Save" });
    reply.hidden = row === undefined;
    const isReply = row !== undefined && row !== edited;
    setText(replyName, !isReply ? "" : row.own ? "yourself" : row.name);
    setText(replyText, row === undefined ? "" : oneLine(row.body));
  }

  addEventListener("pagehide", keepDraft);
  return { element, show, setReply, setEdit, takeDrops, focus: () => field.focus() };
}

function countText(left) {
  const characters = `${Math.abs(left)} character${Math.abs(left) === 1 ? "" : "s"}`;
  return left >= 0 ? `${characters} left` : `${characters} over the limit`;
}
