// The open chat: header, messages and composer; or a placeholder if none is open.

import { chatTitle, typingText, typingUsers } from "../selectors.js";
import { nameList, plural } from "../format.js";
import { unreadOf } from "../state/chats.js";
import { chatAvatar } from "./avatar.js";
import { createSessionControls } from "./companions.js";
import { createComposer } from "./composer.js";
import { fill, h, icon, iconButton, setAria, setText } from "./dom.js";
import { createPinnedBar } from "./pinned_bar.js";
import { createTimeline } from "./timeline.js";

export function createConversation({
  store,
  client,
  files,
  push,
  pins,
  memories,
  onBack,
  onNewChat,
  onMembers,
  onReport,
  onSave,
  newId,
  onOpen,
}) {
  const pinnedBar = createPinnedBar({ store, pins, onGo: (seq) => timeline.goToOlder(seq) });
  client.onEvent = pinnedBar.handleEvent;
  const timeline = createTimeline({
    store,
    client,
    files,
    onReply: (row) => composer.setReply(row),
    onEdit: (row) => composer.setEdit(row),
    onReport,
    pins: pinnedBar,
    onSave,
  });
  const composer = createComposer({ store, client, files, onSent: () => timeline.toEnd(false) });
  const title = h("h2", { class: "chat-title", tabindex: -1 });
  const subtitle = h("p", { class: "chat-subtitle" });
  const face = h("span", { class: "chat-face" });
  const back = iconButton("back", "Back to chats", onBack, { class: "back-button" });
  const backCount = h("span", { class: "back-count" });
  back.append(backCount);
  const members = iconButton("people", "Members", () => onMembers(store.state.open));
  const sessionControls = createSessionControls({ store, client, newId, onOpen, memories });
  const mute = createMute(push, () => store.state.open);
  const head = h(
    "header",
    { class: "chat-head" },
    back,
    face,
    h("div", { class: "chat-names" }, title, subtitle),
    mute.element,
    sessionControls.buttons,
    members,
  );
  const pane = h(
    "div",
    { class: "chat-pane" },
    head,
    pinnedBar.element,
    timeline.element,
    composer.element,
    sessionControls.over,
    ...sessionControls.dialogs,
    pinnedBar.dialog,
  );
  composer.takeDrops(pane);
  const empty = emptyPane(onNewChat);
  const element = h("main", { class: "conversation", id: "conversation" }, empty, pane);
  let faceOf = null;
  let wanted = null; // {chat, seq}: a message to show when its chat is loaded

  function update(state) {
    const chat = state.chats.get(state.open);
    const isOpen = chat !== undefined;
    pane.hidden = !isOpen;
    empty.hidden = isOpen;
    pinnedBar.update(state);
    setAria(element, { label: isOpen ? `Chat: ${chatTitle(chat, state.me)}` : "No chat selected" });
    if (!isOpen) return;
    updateHead(state, chat);
    mute.update();
    timeline.update(state, chat);
    if (wanted?.chat === chat.id && chat.messages.length > 0) {
      const { seq } = wanted;
      wanted = null;
      void timeline.goToOlder(seq);
    }
  }

  function updateHead(state, chat) {
    const name = chatTitle(chat, state.me);
    setText(title, name);
    title.title = name;
    const typing = typingUsers(state, chat.id);
    setText(subtitle, typing.length > 0 ? typingText(typing) : describe(chat, state.me));
    subtitle.classList.toggle("is-typing", typing.length > 0);
    members.hidden = chat.members.length === 0 || chat.kind === "companion";
    sessionControls.update(state, chat);
    composer.element.hidden = chat.isEnded;
    const about = chat.kind === "group" ? "Members" : `About ${name}`;
    members.title = about;
    setAria(members, { label: about });
    if (faceOf !== `${chat.id} ${name}`) fill(face, chatAvatar(chat, state.me));
    faceOf = `${chat.id} ${name}`;
    setAria(timeline.element.firstChild, { label: `Messages with ${name}` });
    composer.show(chat.id, name);
    const elsewhere = [...state.chats.values()].filter((c) => unreadOf(c) > 0 && c.id !== chat.id);
    setText(backCount, elsewhere.length > 0 ? String(elsewhere.length) : "");
    const news = elsewhere.length > 0 ? `, ${plural(elsewhere.length, "unread chat")}` : "";
    setAria(back, { label: `Back to chats${news}` });
  }

  return {
    element,
    update,
    focusComposer: composer.focus,
    showMessage: (chat, seq) => (wanted = { chat, seq }),
    toEnd: () => timeline.toEnd(true),
    settle: timeline.settle,
    updatePush: mute.update,
  };
}

/** The mute button of the open chat; shown if notifications are on in this browser. */
function createMute(push, openChat) {
  const element = h("button", { type: "button", class: "icon-button", on: { click: toggle } });
  let shown = null; // chat
  let isQuiet = false;
  element.hidden = true;

  async function update() {
    const chat = openChat();
    if (push.state !== "on" || chat === null) {
      element.hidden = true;
      shown = null;
    } else if (chat !== shown) {
      shown = chat;
      element.hidden = true;
      const answer = await push.isQuiet(chat).catch(() => null);
      if (shown === chat && answer !== null) draw(answer);
    }
  }

  async function toggle() {
    const chat = shown;
    const answer = await push.setQuiet(chat, !isQuiet).catch(() => isQuiet);
    if (shown === chat) draw(answer);
  }

  function draw(next) {
    isQuiet = next;
    element.hidden = false;
    element.title = isQuiet ? "Unmute this chat" : "Mute this chat";
    fill(element, icon(isQuiet ? "bell-off" : "bell"));
    setAria(element, { label: "Mute this chat", pressed: isQuiet });
  }

  return { element, update };
}

function describe(chat, me) {
  if (chat.kind === "direct") return "Direct chat";
  if (chat.kind === "companion") return chat.isEnded ? "Session ended" : "AI companion";
  if (chat.members.length === 0) return "Group";
  const others = chat.members.filter((member) => member !== me);
  return nameList([...others, "you"], 5);
}

function emptyPane(onNewChat) {
  const start = h(
    "button",
    { type: "button", class: "button", on: { click: onNewChat } },
    "New chat",
  );
  return h(
    "div",
    { class: "empty-pane" },
    h("span", { class: "empty-art", aria: { hidden: true } }, icon("compose")),
    h("h2", {}, "No chat selected"),
    h("p", {}, "Select a chat or start a new one."),
    start,
    h("p", { class: "hint" }, "Press ", h("kbd", {}, "?"), " for keyboard shortcuts"),
  );
}
