// Tells a screen reader what arrives, and the window's title how much is unread.

import { oneLine } from "../format.js";
import { chatTitle, isCatchingUp, unreadTotal } from "../select.js";
import { shownText } from "../state/expiry.js";
import { h } from "./dom.js";

const KEPT = 8;
const NAME = "chatserver";

export function createAnnouncer() {
  const log = h("div", {
    class: "sr-only",
    role: "log",
    aria: { live: "polite", relevant: "additions", label: "New messages" },
  });

  /** Say what is new between two states; what was missed while away is not read out. */
  function update(state, before) {
    document.title = titleOf(state);
    if (!before.isListLoaded || isCatchingUp(state) || state.link.status !== "open") return;
    for (const [id, chat] of state.chats) {
      const old = before.chats.get(id);
      const isNews = chat.last !== null && chat.last.seq > (old?.last?.seq ?? 0);
      if (isNews && old !== chat && chat.last.sender !== state.me) say(state, chat);
    }
  }

  function say(state, chat) {
    const { sender } = chat.last;
    const body = shownText(chat.last);
    const where = chat.id === state.open ? "" : ` in ${chatTitle(chat, state.me)}`;
    log.append(h("p", {}, `${sender}${chat.kind === "group" ? where : ""}: ${oneLine(body, 300)}`));
    while (log.childElementCount > KEPT) log.firstElementChild.remove();
  }

  return { element: log, update };
}

function titleOf(state) {
  const unread = unreadTotal(state);
  const open = state.chats.get(state.open);
  const where = open === undefined ? NAME : `${chatTitle(open, state.me)} · ${NAME}`;
  return unread > 0 ? `(${unread}) ${where}` : where;
}
