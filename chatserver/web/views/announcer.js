// Screen reader announcements of new messages, and the unread count in the window title.

import { oneLine } from "../format.js";
import { chatTitle, isCatchingUp, unreadTotal } from "../selectors.js";
import { shownText } from "../state/expiry.js";
import { findMessage } from "../state/messages.js";
import { h } from "./dom.js";

const KEPT = 8;
const KEPT_MS = 15_000; // long enough to be read out; then removed, as its message may be deleted
const NAME = "chatserver";

export function createAnnouncer() {
  const log = h("div", {
    class: "sr-only",
    role: "log",
    aria: { live: "polite", relevant: "additions", label: "New messages" },
  });
  const lines = []; // {element, chat, seq, text}, the oldest first

  /** Announce messages that are new since `before`; those missed while disconnected are skipped. */
  function update(state, before) {
    document.title = titleOf(state);
    for (const line of [...lines]) if (!isCurrent(state, line)) drop(line);
    if (!before.isListLoaded || isCatchingUp(state) || state.link.status !== "open") return;
    for (const [id, chat] of state.chats) {
      const old = before.chats.get(id);
      const isNews = chat.last !== null && chat.last.seq > (old?.last?.seq ?? 0);
      if (isNews && old !== chat && chat.last.sender !== state.me) announce(state, chat);
    }
  }

  function announce(state, chat) {
    const { sender, seq } = chat.last;
    const text = shownText(chat.last);
    const where = chat.id === state.open ? "" : ` in ${chatTitle(chat, state.me)}`;
    const who = chat.kind === "companion" ? chatTitle(chat, state.me) : sender;
    const words = `${who}${chat.kind === "group" ? where : ""}: ${oneLine(text, 300)}`;
    const line = { element: h("p", {}, words), chat: chat.id, seq, text };
    log.append(line.element);
    lines.push(line);
    setTimeout(drop, KEPT_MS, line);
    while (lines.length > KEPT) drop(lines[0]);
  }

  function drop(line) {
    line.element.remove();
    const at = lines.indexOf(line);
    if (at >= 0) lines.splice(at, 1);
  }

  return { element: log, update };
}

/** Return whether a line still matches its message, which may have been deleted. */
function isCurrent(state, { chat: id, seq, text }) {
  const chat = state.chats.get(id);
  if (chat === undefined) return false;
  const message = findMessage(chat, seq) ?? (chat.last?.seq === seq ? chat.last : null);
  return message === null || shownText(message) === text;
}

function titleOf(state) {
  const unread = unreadTotal(state);
  const open = state.chats.get(state.open);
  const where = open === undefined ? NAME : `${chatTitle(open, state.me)} · ${NAME}`;
  return unread > 0 ? `(${unread}) ${where}` : where;
}
