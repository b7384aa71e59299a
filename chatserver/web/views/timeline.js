// Timeline of the open chat: draws rows, keeps the reading position, and reports what was seen.
// Rows are matched by key, so an element stays with its message.

import { isSameRow, timelineRows } from "../timeline_rows.js";
import { badgeCount, plural } from "../format.js";
import { unreadOf } from "../state/chats.js";
import { responseView } from "./companions.js";
import { fill, h, icon, setAria, setChildren, setText } from "./dom.js";
import { messageView, plainView } from "./message.js";
import { createMessageMenu } from "./message_menu.js";

const NEAR_BOTTOM = 48; // px from the end that still count as the end
const NEAR_TOP = 900; // px from the first loaded row where older messages are fetched
const SEARCH_PAGES_MAX = 100; // pages of older messages that are loaded to show one message
const RETRY_MS = 100;
const FAR = 320; // px from the end where the jump button is shown

export function createTimeline({ store, client, files, onReply, onEdit, onReport, onSave, pins }) {
  const list = h("ol", { class: "rows" });
  const scroller = h(
    "div",
    { class: "timeline", tabindex: 0, role: "region", on: { scroll: onScroll, keydown: onKey } },
    list,
  );
  const count = h("span", { class: "badge", hidden: true });
  const jump = h(
    "button",
    { type: "button", class: "jump", hidden: true, on: { click: () => toEnd(true) } },
    icon("down"),
    count,
  );
  const menu = createMessageMenu({
    reply: (row) => actions.reply(row),
    copy: (row) => actions.copy(row),
    edit: (row) => actions.edit(row),
    react: (row, emoji) => actions.react(row, emoji),
    pin: (row) => pins.toggle(row.seq),
    pinState: (row) => pins.stateOf(row.seq),
    report: (row) => onReport(shown, row.seq),
    save: (row) => onSave(shown, row.seq),
    remove: (row, isForAll) => {
      client.remove(shown, row.seq, isForAll);
      views.get(row.key)?.element.focus({ preventScroll: true }); // its button is removed with its text
    },
  });
  const element = h("div", { class: "timeline-frame" }, scroller, jump, ...menu.elements);
  const views = new Map(); // key → {row, element, update}
  let shown = null; // id of the chat that is drawn
  let isPlaced = false; // the first messages of the chat have been scrolled to
  let isAtEnd = true;
  let frame = 0;
  let isSearching = false; // older messages are being loaded to show one of them

  const actions = {
    reply: (row) => row.seq !== null && !row.isGone && onReply(row),
    edit: (row) => row.seq !== null && row.own && !row.isGone && onEdit(row),
    menu: (row, button) => row.seq !== null && !row.isGone && menu.open(row, button),
    react: (row, emoji) => client.react(shown, row.seq, emoji),
    copy: (row) => navigator.clipboard?.writeText(row.body).catch(() => {}),
    retry: (ref) => client.retry(ref),
    discard: (ref) => client.discard(ref),
    reload: () => client.reload(shown),
    link: (row, file, isThumb) => files.link(file, row.seq, { isThumb }),
    late: (row, file) => files.late(file, row.seq),
    stop: () => client.stopResponse(shown),
    goTo,
  };

  // ── drawing ───────────────────────────────────────────────────────────────────────────────────

  function update(state, chat) {
    if (chat.id !== shown) start(chat.id);
    const rows = timelineRows(state, chat, Date.now());
    const wasOwn = lastOwnKey(rows);
    const isFresh = wasOwn !== null && !views.has(wasOwn) && isPlaced;
    const anchor = isAtEnd ? null : findAnchor();
    draw(rows);
    if (!isPlaced) place(chat);
    else if (isAtEnd || isFresh) toEnd(false);
    else if (anchor !== null) restore(anchor);
    settle();
  }

  function start(id) {
    shown = id;
    isPlaced = false;
    isAtEnd = true;
    views.clear();
    fill(list);
    list.classList.remove("is-live");
  }

  function draw(rows) {
    const kept = new Set();
    const elements = rows.map((row) => {
      kept.add(row.key);
      const view = views.get(row.key);
      if (view === undefined || (view.row.type === "message") !== (row.type === "message")) {
        return addView(row);
      }
      if (!isSameRow(view.row, row)) view.update(row);
      view.row = row;
      return view.element;
    });
    for (const key of views.keys()) if (!kept.has(key)) views.delete(key);
    setChildren(list, elements);
  }

  function addView(row) {
    const make = { message: messageView, answer: responseView }[row.type] ?? plainView;
    const view = make(row, actions);
    views.set(row.key, { ...view, row });
    return view.element;
  }

  function lastOwnKey(rows) {
    const last = rows.findLast((row) => row.type === "message");
    return last?.own && last.mark === "sending" ? last.key : null;
  }

  // ── place ─────────────────────────────────────────────────────────────────────────────────────

  /** Scroll to the unread divider, or to the end. */
  function place(chat) {
    if (chat.older === "unknown") return;
    isPlaced = true;
    const divider = views.get("unread")?.element;
    toEnd(false);
    if (divider !== undefined) {
      const above = divider.offsetTop - scroller.clientHeight / 4;
      if (above < scroller.scrollTop) scroller.scrollTop = above;
      isAtEnd = distance() < NEAR_BOTTOM;
    }
    requestAnimationFrame(() => list.classList.add("is-live"));
  }

  function distance() {
    return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
  }

  function toEnd(isSmooth) {
    const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const isNear = distance() < 4 * scroller.clientHeight;
    const behavior = isSmooth && !isCalm && isNear ? "smooth" : "instant";
    scroller.scrollTo({ top: scroller.scrollHeight, behavior });
    if (behavior === "instant") isAtEnd = true;
  }

  /** The first visible message and its distance from the top edge. */
  function findAnchor() {
    const top = scroller.scrollTop;
    for (const child of list.children) {
      const isMessage = child.classList.contains("message");
      if (isMessage && child.offsetTop + child.offsetHeight > top) {
        return { child, offset: child.offsetTop - top };
      }
    }
    return null;
  }

  function restore({ child, offset }) {
    if (child.isConnected) scroller.scrollTop = child.offsetTop - offset;
  }

  function goTo(seq) {
    const target = list.querySelector(`[data-seq="${Number(seq)}"]`);
    if (target === null) return;
    target.scrollIntoView({ block: "center" });
    target.classList.remove("is-found");
    requestAnimationFrame(() => target.classList.add("is-found"));
    target.focus({ preventScroll: true });
  }

  /** Show a message, and load older ones until it is loaded. */
  async function goToOlder(seq) {
    const id = shown;
    isSearching = true; // else older messages would be dropped again at the end of the chat
    for (let pages = 0; pages < SEARCH_PAGES_MAX && shown === id; pages += 1) {
      const chat = store.state.chats.get(id);
      if (chat === undefined || seq >= (chat.messages[0]?.seq ?? Infinity)) break;
      if (chat.older !== "more" || chat.trouble !== null) break;
      await (client.loadOlder(id) ?? new Promise((resolve) => setTimeout(resolve, RETRY_MS)));
    }
    requestAnimationFrame(() =>
      requestAnimationFrame(() => {
        isSearching = false;
        if (shown === id) goTo(seq);
      }),
    );
  }

  // ── scrolling ─────────────────────────────────────────────────────────────────────────────────

  function onScroll() {
    isAtEnd = distance() < NEAR_BOTTOM;
    if (frame === 0) frame = requestAnimationFrame(() => settle());
  }

  /** After a change or a scroll: load more, update the jump button, report what was seen. */
  function settle() {
    frame = 0;
    const chat = store.state.chats.get(shown);
    if (chat === undefined || !isPlaced) return;
    if (scroller.scrollTop < NEAR_TOP && chat.older === "more") client.loadOlder(shown);
    const isFar = distance() > FAR;
    if (!isFar && isAtEnd && !isSearching) store.dispatch({ type: "trim", chat: shown });
    jump.hidden = !isFar && (unreadOf(chat) === 0 || isAtEnd);
    count.hidden = unreadOf(chat) === 0;
    setText(count, badgeCount(unreadOf(chat)));
    const news = unreadOf(chat) > 0 ? `, ${plural(unreadOf(chat), "new message")}` : "";
    setAria(jump, { label: `Go to the latest message${news}` });
    jump.title = "Go to the latest message";
    reportSeen();
  }

  function reportSeen() {
    if (!store.state.isWatched || element.offsetParent === null) return;
    const bottom = scroller.scrollTop + scroller.clientHeight + 8;
    for (let row = list.lastElementChild; row !== null; row = row.previousElementSibling) {
      const isSeen = row.offsetTop + Math.min(row.offsetHeight, 60) <= bottom;
      if (isSeen && row.dataset.seq !== undefined) {
        client.seen(shown, Number(row.dataset.seq));
        return;
      }
    }
  }

  // ── keys ──────────────────────────────────────────────────────────────────────────────────────

  /** Up and down move through the messages; R replies, C copies, E edits, M opens the menu. */
  function onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const current = event.target.closest(".message");
    const step = { ArrowUp: "previousElementSibling", ArrowDown: "nextElementSibling" }[event.key];
    if (step !== undefined) {
      let next = current === null ? list.lastElementChild : current[step];
      while (next !== null && !next.classList.contains("message")) {
        next = current === null ? next.previousElementSibling : next[step];
      }
      if (next === null) return;
      event.preventDefault();
      next.focus({ preventScroll: true });
      next.scrollIntoView({ block: "nearest" });
    } else if (event.target === current) {
      const row = [...views.values()].find((view) => view.element === current)?.row;
      const toMenu = (found) => actions.menu(found, current.querySelector(".more-button"));
      const letters = { r: actions.reply, c: actions.copy, e: actions.edit, m: toMenu };
      const action = { ...letters, Enter: actions.reply, ContextMenu: toMenu }[event.key];
      if (row === undefined || action === undefined) return;
      event.preventDefault();
      action(row);
    }
  }

  // When the composer grows or the window is resized, the end stays visible.
  new ResizeObserver(() => {
    if (isAtEnd && isPlaced) toEnd(false);
  }).observe(scroller);

  return { element, update, settle, toEnd, goToOlder, focus: () => scroller.focus() };
}
