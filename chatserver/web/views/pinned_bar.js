// Pinned messages of the open chat: a bar above the messages, and a dialog that lists all of them.

import { fullTime, oneLine, plural } from "../format.js";
import { PinFailed } from "../pins.js";
import { shownText } from "../state/expiry.js";
import { findMessage } from "../state/messages.js";
import { fill, h, hidden, icon, iconButton, setAria, setText } from "./dom.js";
import { button, createForm } from "./form_dialog.js";

const RELOAD_MS = 100; // coalesces events that arrive together

/** `onGo(seq)` shows a message. Return `{element, dialog, update, handleEvent, stateOf, toggle}`. */
export function createPinnedBar({ store, pins, onGo }) {
  const text = h("span", { class: "pinned-text", dir: "auto" });
  const go = h(
    "button",
    { type: "button", class: "pinned-go", on: { click: () => onGo(shownItems()[0].seq) } },
    icon("pin"),
    hidden("Pinned message: "),
    text,
  );
  const all = h("button", { type: "button", class: "button button-quiet", on: { click: openList } });
  const note = h("span", { class: "pinned-problem", role: "alert" });
  const dismiss = iconButton("close", "Dismiss", () => showProblem(""));
  const problem = h("div", { class: "pinned-note" }, note, dismiss);
  const line = h("div", { class: "pinned-line" }, go, all);
  const element = h(
    "section",
    { class: "pinned", aria: { label: "Pinned messages" } },
    line,
    problem,
  );
  const form = createForm("Pinned messages");
  let chat = null; // id of the open chat
  let items = []; // [{seq, message}], the newest message first
  let mayPin = false;
  let isOnline = false;
  let timer = null;
  problem.hidden = true;
  element.hidden = true;

  /** The pinned messages in their current state, without deleted and expired ones. */
  function shownItems() {
    const open = store.state.chats.get(chat);
    if (open === undefined) return [];
    const now = Date.now() / 1000;
    return items
      .map(({ seq, message }) => ({ seq, message: findMessage(open, seq) ?? message }))
      .filter(({ message }) => !message.deleted && !((message.expires_at ?? Infinity) <= now));
  }

  // ── loading ───────────────────────────────────────────────────────────────────────────────────

  /** Draw; load the list when another chat is opened and after each reconnection. */
  function update(state) {
    const wasOnline = isOnline;
    isOnline = state.link.status === "open";
    const open = state.chats.has(state.open) ? state.open : null;
    if (open !== chat) {
      chat = open;
      items = [];
      mayPin = false;
      form.close();
      showProblem("");
      if (chat !== null) void load();
    } else if (isOnline && !wasOnline && chat !== null) void load();
    draw();
  }

  /** Reload after an event that may have changed the list. */
  function handleEvent(frame) {
    if (frame.chat !== chat || chat === null) return;
    const entry = frame.message;
    const seqs = frame.kind === "hidden" ? frame.hidden : [entry?.target];
    const isPinned = items.some(({ seq }) => seqs.includes(seq));
    const isChange = ["pin", "unpin"].includes(entry?.kind);
    const isRole = entry?.kind === "member" && entry.user === store.state.me;
    if (!isChange && !isRole && !isPinned) return;
    clearTimeout(timer);
    timer = setTimeout(load, RELOAD_MS);
  }

  async function load() {
    const loaded = chat;
    if (loaded === null) return;
    try {
      const [found, isAllowed] = await Promise.all([
        pins.list(loaded),
        pins.mayPin(loaded, store.state.me),
      ]);
      if (chat !== loaded) return;
      items = found.map(({ message }) => ({ seq: message.seq, message }));
      mayPin = isAllowed;
    } catch (error) {
      if (!(error instanceof PinFailed)) throw error; // the next event or reconnection tries again
    }
    draw();
    if (form.element.open) drawList();
  }

  // ── drawing ───────────────────────────────────────────────────────────────────────────────────

  function draw() {
    const shown = shownItems();
    const [newest] = shown;
    line.hidden = newest === undefined;
    element.hidden = newest === undefined && problem.hidden;
    if (newest === undefined) return;
    setText(text, oneLine(shownText(newest.message), 200));
    const count = plural(shown.length, "pinned message");
    setText(all, shown.length === 1 ? "Show" : `All ${shown.length}`);
    setAria(all, { label: `Show ${count}`, haspopup: "dialog" });
  }

  function showProblem(words) {
    setText(note, words);
    problem.hidden = words === "";
    draw();
  }

  function openList() {
    form.showStatus("");
    drawList();
    form.open();
  }

  function drawList() {
    const shown = shownItems();
    if (shown.length === 0) fill(form.content, h("p", { class: "hint" }, "No pinned messages."));
    else fill(form.content, h("ul", { class: "pinned-list" }, ...shown.map(listItem)));
  }

  function listItem({ seq, message }) {
    const at = message.ts / 1000;
    const brief = oneLine(shownText(message), 60);
    const show = button("Go to message", () => {
      form.close();
      onGo(seq);
    });
    const unpin = mayPin ? button("Unpin", () => form.attempt(() => unpinListed(seq))) : null;
    setAria(show, { label: `Go to message: ${brief}` });
    if (unpin !== null) setAria(unpin, { label: `Unpin: ${brief}` });
    return h(
      "li",
      {},
      h(
        "p",
        { class: "pinned-by" },
        h("bdi", {}, message.sender),
        " · ",
        h("time", { datetime: new Date(at).toISOString() }, fullTime(at)),
      ),
      h("p", { class: "pinned-body", dir: "auto" }, shownText(message)),
      h("div", { class: "pinned-actions" }, show, unpin),
    );
  }

  async function unpinListed(seq) {
    await pins.unpin(chat, seq);
    await load();
    form.showStatus("Message unpinned.");
  }

  // ── the message menu ──────────────────────────────────────────────────────────────────────────

  /** Return "pinned" or "unpinned" if the user may change that of a message, else null. */
  function stateOf(seq) {
    if (!mayPin) return null;
    return items.some((item) => item.seq === seq) ? "pinned" : "unpinned";
  }

  async function toggle(seq) {
    const changed = chat;
    const change = stateOf(seq) === "pinned" ? pins.unpin : pins.pin;
    showProblem("");
    try {
      await change(changed, seq);
      await load();
    } catch (error) {
      if (!(error instanceof PinFailed)) throw error;
      if (chat === changed) showProblem(error.message);
    }
  }

  return { element, dialog: form.element, update, handleEvent, stateOf, toggle };
}
