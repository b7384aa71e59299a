// Sidebar: user menu, search and the list of chats.

import { badgeCount, listTime, plural } from "../format.js";
import { chatTitle, filterChats, listChats, preview } from "../selectors.js";
import { unreadOf } from "../state/chats.js";
import { chatAvatar } from "./avatar.js";
import { fill, h, hidden, icon, iconButton, setAria, setChildren } from "./dom.js";
import { markIcon } from "./message.js";
import { createSearchResults } from "./search_results.js";

export function createSidebar({
  store,
  client,
  search: messages,
  menu,
  onOpen,
  onMessage,
  onNewChat,
  onPeople,
  onDirect,
}) {
  const search = h("input", {
    class: "search-field",
    type: "search",
    placeholder: "Search chats and messages",
    autocomplete: "off",
    spellcheck: "false",
    aria: { label: "Search chats and messages" },
    on: { input: onInput, keydown: onSearchKey },
  });
  const list = h("ul", {
    class: "chat-list",
    aria: { label: "Chats" },
  });
  const note = h("div", { class: "list-note" });
  const results = createSearchResults({ store, search: messages, onMessage });
  const scroller = h(
    "div",
    { class: "chat-scroller", on: { scroll: onScroll, keydown: onListKey } },
    list,
    note,
    results.element,
  );
  const people = iconButton("people", "Timeline and people", () => onPeople());
  const compose = iconButton("compose", "New chat", () => onNewChat());
  const element = h(
    "nav",
    { class: "sidebar", aria: { label: "Chats" } },
    h("header", { class: "sidebar-head" }, menu, h("h1", {}, "Chats"), people, compose),
    h("div", { class: "search" }, icon("search"), search),
    scroller,
  );
  const items = new Map(); // id → {signature, element, button}

  // ── drawing ───────────────────────────────────────────────────────────────────────────────────

  function update(state) {
    const chats = filterChats(listChats(state), search.value, state.me);
    for (const id of items.keys()) if (!state.chats.has(id)) items.delete(id);
    setChildren(
      list,
      chats.map((chat) => itemFor(state, chat)),
    );
    const current = chats.some((chat) => chat.id === state.open) ? state.open : chats[0]?.id;
    for (const [id, item] of items) item.button.tabIndex = id === current ? 0 : -1;
    drawNote(state, chats);
  }

  function itemFor(state, chat) {
    const now = Date.now();
    const known = items.get(chat.id);
    const line = preview(state, chat);
    const title = chatTitle(chat, state.me);
    const time = line.at === null ? "" : listTime(line.at, now);
    const isOpen = state.open === chat.id;
    const { kind, who, text, mark } = line;
    const signature = JSON.stringify([title, time, kind, who, text, mark, unreadOf(chat), isOpen]);
    if (known?.signature === signature) return known.element;
    const button =
      known?.button ?? h("button", { type: "button", on: { click: () => onOpen(chat.id) } });
    button.className = `chat-item${isOpen ? " is-open" : ""}${unreadOf(chat) > 0 ? " has-unread" : ""}`;
    setAria(button, { current: isOpen ? "true" : null });
    fill(
      button,
      chatAvatar(chat, state.me, "l"),
      h("span", { class: "item-title" }, h("bdi", {}, title)),
      h("span", { class: "item-time" }, time),
      previewNode(line),
      badge(unreadOf(chat)),
    );
    const element = known?.element ?? h("li", {}, button);
    items.set(chat.id, { signature, element, button });
    return element;
  }

  function drawNote(state, chats) {
    const query = search.value.trim();
    const signature = JSON.stringify([
      state.isListLoaded,
      chats.length === 0,
      query,
      state.nextChats,
    ]);
    if (note.dataset.signature === signature) return;
    note.dataset.signature = signature;
    if (!state.isListLoaded) fill(note, ...skeletons());
    else if (query !== "") fill(note, ...searchNote(query, chats));
    else if (chats.length === 0) fill(note, ...emptyNote());
    else if (state.nextChats !== null) fill(note, h("span", { class: "spinner" }));
    else fill(note);
  }

  function searchNote(query, chats) {
    const found = chats.length > 0 ? [] : [h("p", {}, `No chats match “${query}”.`)];
    const start = {
      type: "button",
      class: "button button-quiet",
      on: { click: () => direct(query) },
    };
    return [...found, h("button", start, "Start a chat with ", h("bdi", {}, query))];
  }

  function emptyNote() {
    const start = { type: "button", class: "button", on: { click: () => onNewChat() } };
    return [
      h("p", { class: "note-title" }, "No chats yet"),
      h("p", {}, "Message someone by username or create a group."),
      h("button", start, "New chat"),
    ];
  }

  function direct(name) {
    onDirect(name);
    clearSearch();
  }

  function clearSearch() {
    search.value = "";
    onInput();
  }

  function onInput() {
    update(store.state);
    results.show(search.value);
  }

  // ── keys and scrolling ────────────────────────────────────────────────────────────────────────

  function onSearchKey(event) {
    const first = list.querySelector("button");
    const below = first ?? results.element.querySelector(".result-item");
    if (event.key === "ArrowDown" && below) below.focus();
    else if (event.key === "Enter" && first) first.click();
    else if (event.key === "Enter" && search.value.trim() !== "") direct(search.value.trim());
    else if (event.key === "Escape" && search.value !== "") clearSearch();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** The list is a single tab stop; arrow keys move within it, and to the found messages. */
  function onListKey(event) {
    const buttons = [...scroller.querySelectorAll(".chat-item")];
    const at = buttons.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (to === undefined || event.altKey) return;
    event.preventDefault();
    if (to < 0) search.focus();
    else buttons[Math.min(to, buttons.length - 1)]?.focus();
  }

  function onScroll() {
    const left = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
    if (left < 400) client.loadMoreChats();
  }

  return {
    element,
    update,
    focusSearch: () => (search.focus(), search.select()),
    focusChat: (id) => (items.get(id)?.button ?? list.querySelector("button") ?? search).focus(),
    order: () => filterChats(listChats(store.state), search.value, store.state.me).map((c) => c.id),
  };
}

function previewNode({ kind, who, text, mark }) {
  return h(
    "span",
    { class: `item-preview is-${kind}` },
    mark === null ? null : markIcon(mark),
    who === null ? null : h("bdi", { class: "item-who" }, `${who}: `),
    h("bdi", { class: "item-text", dir: "auto" }, text),
  );
}

function badge(count) {
  if (count === 0) return null;
  const label = h("span", { aria: { hidden: true } }, badgeCount(count));
  return h("span", { class: "badge" }, label, hidden(plural(count, "unread message")));
}

function skeletons() {
  const lines = Array.from({ length: 6 }, () =>
    h("div", { class: "skeleton", aria: { hidden: true } }, h("i"), h("b"), h("s")),
  );
  return [hidden("Loading your chats"), ...lines];
}
