// The user's own menu: theme, shortcuts, leaving. And the list of a group's members.

import { loadTheme, saveTheme } from "../storage.js";
import { chatTitle } from "../select.js";
import { plural } from "../format.js";
import { userAvatar } from "./avatar.js";
import { createDialog } from "./dialog.js";
import { fill, h, hidden, icon, iconButton, setAria, setText } from "./dom.js";

const THEMES = [
  ["system", "monitor", "Like the system"],
  ["light", "sun", "Light"],
  ["dark", "moon", "Dark"],
];

const PUSH_LABELS = {
  off: "Turn on notifications",
  on: "Turn off notifications",
  busy: "One moment…",
  blocked: "Notifications are blocked. Allow them in the browser’s settings for this page.",
  failed: "Notifications could not be turned on. Try again",
};

/** Return `{button, element, updatePush, showInvitations}`: the menu and the button that opens it. */
export function createMenu({ user, push, isAdmin, onAdmin, onHelp, onAccount, onBlocks, onInvitations, onLeave }) {
  const themes = THEMES.map(([theme, name, label]) => themeButton(theme, name, label));
  const invitationsLabel = h("span", {}, "Invitations");
  const pushLabel = h("span", { aria: { live: "polite" } });
  const switchPush = () => (push.state === "on" ? push.turnOff() : push.turnOn());
  const notifications = item("bell", pushLabel, switchPush, { staysOpen: true });
  const operations = item("pulse", "Operations", onAdmin);
  operations.hidden = true; // until the server has said that one may
  const menu = h(
    "div",
    {
      class: "menu",
      id: "user-menu",
      popover: "auto",
      role: "dialog",
      aria: { label: "You" },
      on: { toggle: askOnce },
    },
    h("div", { class: "menu-who" }, userAvatar(user, "l"), h("bdi", { class: "menu-name" }, user)),
    h("div", { class: "segments", role: "group", aria: { label: "Theme" } }, ...themes),
    notifications,
    operations,
    item("keyboard", "Keyboard shortcuts", onHelp),
    onAccount ? item("people", "Account and devices", onAccount) : null,
    item("people", invitationsLabel, onInvitations),
    item("hide", "Blocked users", onBlocks),
    item("leave", "Log out", onLeave),
  );
  const button = h(
    "button",
    { type: "button", class: "me-button", popovertarget: "user-menu", title: `You are ${user}` },
    userAvatar(user),
    hidden(`You are ${user}. Menu`),
  );

  function item(name, label, deed, { staysOpen = false } = {}) {
    const onClick = () => (staysOpen || menu.hidePopover(), deed());
    return h(
      "button",
      { type: "button", class: "menu-item", on: { click: onClick } },
      icon(name),
      label,
    );
  }

  function themeButton(theme, name, label) {
    const onClick = () => (saveTheme(theme), applyTheme(theme), drawThemes());
    const props = {
      type: "button",
      class: "segment",
      title: label,
      data: { theme },
      on: { click: onClick },
    };
    return h("button", props, icon(name), hidden(label));
  }

  /** Only who opens the menu asks, so that nobody else's page takes a request for it. */
  async function askOnce({ newState }) {
    if (newState !== "open" || !operations.hidden) return;
    operations.hidden = !(await isAdmin().catch(() => false));
  }

  function drawThemes() {
    const chosen = loadTheme();
    for (const each of themes) setAria(each, { pressed: each.dataset.theme === chosen });
  }

  function updatePush(state) {
    notifications.hidden = state === "missing";
    notifications.disabled = state === "busy" || state === "blocked";
    setText(pushLabel, PUSH_LABELS[state] ?? "");
  }

  /** Show how many invitations there are: in the menu, and as a dot on its button. */
  function showInvitations(count) {
    setText(invitationsLabel, count === 0 ? "Invitations" : `Invitations (${count})`);
    button.classList.toggle("has-news", count > 0);
    button.title = count === 0 ? `You are ${user}` : plural(count, "invitation");
  }

  drawThemes();
  updatePush(push.state);
  return { button, element: menu, updatePush, showInvitations };
}

function applyTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

/** The dialog that lists the members of a group. */
export function createMembers({ store, isManager, onDirect, onPerson, onBans, onCare }) {
  const dialog = createDialog({ title: "Members", class: "dialog-members" });
  const list = h("ul", { class: "suggestions" });
  let shown = null; // the group
  const elsewhere = (text, open) => {
    const onClick = () => (dialog.close(), open(shown));
    return h("button", { type: "button", class: "button button-quiet", on: { click: onClick } }, text);
  };
  const foot = h(
    "div",
    { class: "dialog-foot" },
    elsewhere("Slow mode and reports", onCare),
    elsewhere("Banned users", onBans),
  );
  dialog.body.append(list, foot);

  function open(id) {
    const chat = store.state.chats.get(id);
    if (chat === undefined) return;
    const { me } = store.state;
    const count = plural(chat.members.length, "member");
    setText(dialog.heading, `${chatTitle(chat, me)} · ${count}`);
    fill(list, ...chat.members.map((user) => h("li", {}, line(id, user, user === me))));
    shown = id;
    foot.hidden = true;
    isManager(id).then((isOne) => shown === id && (foot.hidden = !isOne));
    dialog.open();
  }

  function line(id, user, isMe) {
    const name = h("bdi", {}, user);
    if (isMe)
      return h("div", { class: "suggestion" }, userAvatar(user, "s"), name, h("small", {}, "you"));
    const onClick = () => (dialog.close(), onDirect(user));
    const props = {
      type: "button",
      class: "suggestion",
      title: `Write to ${user}`,
      on: { click: onClick },
    };
    const about = iconButton("more", `About ${user}`, () => (dialog.close(), onPerson(id, user)));
    return h("div", { class: "member-line" }, h("button", props, userAvatar(user, "s"), name), about);
  }

  return { element: dialog.element, open };
}
