// Messages found for the text of the search field, below the chats of the sidebar. The server sends
// snippets as segments of plain text; each becomes a text node, and hits are in a `mark` element.

import { listTime } from "../format.js";
import { chatTitle } from "../selectors.js";
import { chatAvatar, userAvatar } from "./avatar.js";
import { fill, h, setText } from "./dom.js";

const WAIT_MS = 250; // after the last key
const TEXT_MIN = 2;

/** `onMessage(chat, seq)` opens a chat at a message. */
export function createSearchResults({ store, search, onMessage }) {
  const list = h("ul", { class: "result-list", aria: { label: "Messages" } });
  const status = h("p", { class: "result-status", role: "status" });
  const more = h("button", { type: "button", class: "button button-quiet" }, "Show more");
  const element = h(
    "section",
    { class: "results", hidden: true, aria: { label: "Found messages" } },
    h("h2", { class: "result-head" }, "Messages"),
    list,
    status,
    more,
  );
  let shown = ""; // text of the results
  let started = 0; // responses to earlier searches are dropped
  let timer = null;

  /** Search for a text soon; an empty text hides the results. */
  function show(text) {
    const wanted = text.trim();
    if (wanted === shown) return;
    shown = wanted;
    started += 1;
    clearTimeout(timer);
    element.hidden = wanted.length < TEXT_MIN;
    fill(list);
    more.hidden = true;
    setText(status, element.hidden ? "" : "Searching…");
    if (!element.hidden) timer = setTimeout(() => load(closed(text.trimStart()), null), WAIT_MS);
  }

  async function load(text, cursor) {
    const mine = started;
    more.disabled = true;
    try {
      const page = await search.find(text, cursor);
      if (mine !== started) return;
      list.append(...page.items.map(item));
      setText(status, list.children.length > 0 || page.next !== null ? "" : "No messages found.");
      more.hidden = page.next === null;
      more.onclick = () => load(text, page.next);
    } catch (error) {
      if (mine === started) setText(status, error.message);
    } finally {
      if (mine === started) more.disabled = false;
    }
  }

  function item({ message, snippet }) {
    const { chats, me } = store.state;
    const chat = chats.get(message.chat);
    const sentAt = message.ts / 1000;
    const time = h("time", { class: "item-time" }, listTime(sentAt, Date.now()));
    time.dateTime = new Date(sentAt).toISOString();
    const files = (message.attachments ?? []).map((file) => file.name).join(", ");
    const parts = snippet.map(({ text, hit }) => (hit ? h("mark", {}, text) : text));
    const who = message.sender === me ? "You" : message.sender;
    const button = h(
      "button",
      {
        type: "button",
        class: "chat-item result-item",
        on: { click: () => onMessage(message.chat, message.seq) },
      },
      chat === undefined ? userAvatar(message.sender, "l") : chatAvatar(chat, me, "l"),
      h(
        "span",
        { class: "item-title" },
        h("bdi", {}, chat === undefined ? message.sender : chatTitle(chat, me)),
      ),
      time,
      h(
        "span",
        { class: "result-text" },
        h("bdi", { class: "item-who" }, `${who}: `),
        h("bdi", { dir: "auto" }, ...(parts.length > 0 ? parts : [files])),
      ),
    );
    return h("li", {}, button);
  }

  return { element, show };
}

/** A phrase is searched for while it is typed, before its second quote. */
function closed(text) {
  return text.split('"').length % 2 === 0 ? `${text}"` : text;
}
