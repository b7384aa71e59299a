// App shell of a logged-in user: combines the views and redraws them when the state changes, once
// per frame. The URL (#/chat/<id>) selects the open chat, so the browser's Back button returns from
// a chat to the list.

import { isId } from "../format.js";
import { drawBadge } from "../push.js";
import { unreadOf } from "../state/chats.js";
import { createAdminPage } from "./admin.js";
import { createAnnouncer } from "./announcer.js";
import { createBanner } from "./banner.js";
import { createConversation } from "./conversation.js";
import { h } from "./dom.js";
import { createHelp, listenForShortcuts } from "./keyboard_shortcuts.js";
import { createMembers } from "./member_list.js";
import { createModerationViews } from "./moderation.js";
import { createNewChat } from "./new_chat.js";
import { SAVED, createSocialPane } from "./social.js";
import { createSidebar } from "./sidebar.js";
import { createMenu } from "./user_menu.js";

const TOAST_MS = 5000;
const CLOCK_MS = 60_000; // "Today" becomes "Yesterday" without a message
const NARROW = matchMedia("(max-width: 719px)");

const addUnread = (sum, chat) => sum + unreadOf(chat);

export function createShell({
  store,
  client,
  files,
  push,
  pins,
  memories,
  search,
  user,
  account,
  moderation,
  social,
  admin,
  demoUsers,
  newId,
  onLeave,
  onLogin,
}) {
  const help = createHelp();
  const newChat = createNewChat({ store, client, demoUsers, newId, onOpen: go });
  const moderationViews = createModerationViews({ store, moderation });
  const members = createMembers({
    store,
    isManager: moderationViews.isManager,
    onDirect: newChat.direct,
    onPerson: moderationViews.openPerson,
    onBans: moderationViews.openBans,
    onGroupSettings: moderationViews.openGroupSettings,
  });
  const menu = createMenu({
    user,
    push,
    isAdmin: admin.isAdmin,
    onAdmin: () => (location.hash = "#/admin"),
    onHelp: help.open,
    onAccount: account?.open,
    onBlocks: moderationViews.openBlocks,
    onInvitations: moderationViews.openInvitations,
    onLeave,
  });
  moderationViews.onInvitations(menu.showInvitations);
  client.onInvitation = moderationViews.countInvitations;
  void moderationViews.countInvitations();
  const banner = createBanner({ store, client, onLogin });
  const announcer = createAnnouncer();
  const sidebar = createSidebar({
    store,
    client,
    search,
    menu: menu.button,
    onOpen: go,
    onMessage: goToMessage,
    onNewChat: () => newChat.open(),
    onPeople: () => goToPeople(null),
    onDirect: newChat.direct,
  });
  const socialPane = createSocialPane({
    me: user,
    social,
    onBack: leavePane,
    onDirect: newChat.direct,
    onChat: go,
    go: goToPeople,
  });
  client.onPost = socialPane.handlePost;
  const adminPage = createAdminPage({ admin, onBack: leavePane });
  const conversation = createConversation({
    store,
    client,
    files,
    push,
    pins,
    memories,
    onBack: back,
    onNewChat: () => newChat.open(),
    onMembers: openMembers,
    onReport: moderationViews.openReport,
    onSave,
    newId,
    onOpen: go,
  });
  const toast = h("p", { class: "toast", role: "status" });
  let toastTimer = null;
  const panes = h(
    "div",
    { class: "panes" },
    sidebar.element,
    conversation.element,
    socialPane.element,
    adminPage.element,
  );
  const element = h(
    "div",
    { class: "shell" },
    banner.element,
    panes,
    toast,
    announcer.element,
    menu.element,
    account?.element,
    newChat.element,
    members.element,
    ...moderationViews.elements,
    help.element,
  );
  let drawn = store.state;
  let isQueued = false;
  let wantsFocus = false;

  /** A direct chat has one other member to show. */
  function openMembers(id) {
    const chat = store.state.chats.get(id);
    if (chat?.kind === "group") members.open(id);
    else if (chat !== undefined) {
      moderationViews.openPerson(id, chat.members.find((user) => user !== store.state.me));
    }
  }

  // ── drawing ───────────────────────────────────────────────────────────────────────────────────

  function queue() {
    if (isQueued) return;
    isQueued = true;
    // A hidden window gets no frames, but its title must be updated.
    if (document.hidden) setTimeout(draw, 0);
    else requestAnimationFrame(draw);
  }

  function draw() {
    isQueued = false;
    const { state } = store;
    const before = drawn;
    drawn = state;
    panes.classList.toggle("has-open", state.chats.has(state.open));
    banner.update(state);
    sidebar.update(state);
    conversation.update(state);
    announcer.update(state, before);
    if (state.chats !== before.chats) drawBadge([...state.chats.values()].reduce(addUnread, 0));
    if (state.isListLoaded && !before.isListLoaded) followAddress();
    if (wantsFocus && state.chats.has(state.open)) focusOpen();
  }

  function focusOpen() {
    wantsFocus = false;
    conversation.focusComposer();
  }

  // ── which chat ────────────────────────────────────────────────────────────────────────────────

  function addressed() {
    const id = decodeURIComponent(location.hash).match(/^#\/chat\/(.+)$/)?.[1] ?? null;
    return id !== null && isId(id) ? id : null;
  }

  function go(id) {
    wantsFocus = true;
    if (addressed() === id) followAddress();
    else if (NARROW.matches || addressed() === null) location.hash = `#/chat/${id}`;
    else {
      history.replaceState(null, "", `#/chat/${id}`); // Back leaves the page instead of visiting each chat
      followAddress();
    }
  }

  /** Open a chat at a message, which gets the focus. */
  function goToMessage(chat, seq) {
    conversation.showMessage(chat, seq);
    go(chat);
    wantsFocus = false;
    queue();
  }

  /** Save a message for oneself; the result is shown for some seconds. */
  async function onSave(chat, seq) {
    const text = await social.setMessageSaved(chat, seq, true).then(
      () => "Message saved. Find it in your timeline under Saved.",
      () => "Couldn't save the message. Try again.",
    );
    toast.textContent = text;
    clearTimeout(toastTimer);
    toastTimer = setTimeout(() => (toast.textContent = ""), TOAST_MS);
  }

  /** Return null for the timeline, a username, `SAVED`, or undefined if the URL is none of them. */
  function addressedPeople() {
    if (location.hash === "#/saved") return SAVED;
    const found = decodeURIComponent(location.hash).match(/^#\/people(?:\/(.+))?$/);
    if (found === null) return undefined;
    return found[1] !== undefined && isId(found[1]) ? found[1] : null;
  }

  function goToPeople(whose) {
    if (whose === SAVED) location.hash = "#/saved";
    else location.hash = whose === null ? "#/people" : `#/people/${whose}`;
  }

  function leavePane() {
    history.replaceState(null, "", "#/");
    followAddress();
    sidebar.focusSearch();
  }

  /** Show or hide the social pane according to the URL; return whether it is shown. */
  function followPeople() {
    const whose = addressedPeople();
    panes.classList.toggle("has-people", whose !== undefined);
    if (whose === undefined) socialPane.close();
    else socialPane.open(whose);
    return whose !== undefined;
  }

  function followAdmin() {
    const isThere = location.hash === "#/admin";
    panes.classList.toggle("has-admin", isThere);
    if (isThere) adminPage.open();
    else adminPage.close();
    return isThere;
  }

  async function followAddress() {
    const isAdminOpen = followAdmin();
    if (followPeople() || isAdminOpen) {
      client.closeChat();
      return;
    }
    const id = addressed();
    if (id === null) {
      client.closeChat();
      return;
    }
    // The chat may be on a page of the list that is not loaded yet.
    while (!store.state.chats.has(id) && store.state.nextChats !== null) {
      const before = store.state.nextChats;
      await client.loadMoreChats();
      if (store.state.nextChats === before) break;
    }
    if (addressed() !== id) return;
    if (store.state.chats.has(id)) client.openChat(id);
    else if (store.state.isListLoaded) history.replaceState(null, "", "#/");
    queue();
  }

  function back() {
    const id = store.state.open;
    if (id === null) return;
    history.replaceState(null, "", "#/");
    client.closeChat();
    requestAnimationFrame(() => sidebar.focusChat(id));
  }

  function step(by) {
    const order = sidebar.order();
    const at = order.indexOf(store.state.open);
    const next = at < 0 ? order[0] : order[(at + by + order.length) % order.length];
    if (next !== undefined) go(next);
  }

  // ── the window ────────────────────────────────────────────────────────────────────────────────

  const abort = new AbortController();
  const { signal } = abort;

  function attend() {
    client.setAttention({ isVisible: !document.hidden, isFocused: document.hasFocus() });
    conversation.settle();
  }

  function start() {
    addEventListener("hashchange", followAddress, { signal });
    document.addEventListener("visibilitychange", attend, { signal });
    for (const type of ["focus", "blur", "pageshow"]) addEventListener(type, attend, { signal });
    addEventListener("pagehide", () => client.leave(), { signal });
    for (const type of ["online", "offline"]) {
      addEventListener(type, () => client.connection.suspect(), { signal });
    }
    const unlisten = listenForShortcuts({
      search: sidebar.focusSearch,
      newChat: () => newChat.open(),
      step,
      toEnd: conversation.toEnd,
      back,
      help: help.open,
    });
    const unsubscribe = store.subscribe(queue);
    const clock = setInterval(queue, CLOCK_MS);
    signal.addEventListener("abort", () => (unlisten(), unsubscribe(), clearInterval(clock)));
    attend();
    draw();
  }

  /** Apply a change of the notification state. */
  function updatePush(state) {
    menu.updatePush(state);
    conversation.updatePush();
  }

  function stop() {
    abort.abort();
    adminPage.close();
  }

  return { element, start, go, updatePush, stop };
}
