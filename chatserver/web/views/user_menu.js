// User menu: theme, notifications, account, log out.

import { loadTheme, saveTheme } from "../storage.js";
import { plural } from "../format.js";
import { userAvatar } from "./avatar.js";
import { h, hidden, icon, setAria, setText } from "./dom.js";

const THEMES = [
  ["system", "monitor", "System"],
  ["light", "sun", "Light"],
  ["dark", "moon", "Dark"],
];

const PUSH_LABELS = {
  off: "Turn on notifications",
  on: "Turn off notifications",
  busy: "Updating notifications…",
  blocked: "Notifications are blocked. Allow them in your browser settings.",
  failed: "Couldn't turn on notifications. Try again",
};

/** Return `{button, element, updatePush, showInvitations}`: the menu and the button that opens it. */
export function createMenu({ user, push, isAdmin, onAdmin, onHelp, onAccount, onBlocks, onInvitations, onLeave }) {
  const themes = THEMES.map(([theme, name, label]) => themeButton(theme, name, label));
  const invitationsLabel = h("span", {}, "Invitations");
  const pushLabel = h("span", { aria: { live: "polite" } });
  const switchPush = () => (push.state === "on" ? push.turnOff() : push.turnOn());
  const notifications = item("bell", pushLabel, switchPush, { staysOpen: true });
  const operations = item("pulse", "Operations", onAdmin);
  operations.hidden = true; // until the server has confirmed admin rights
  const menu = h(
    "div",
    {
      class: "menu",
      id: "user-menu",
      popover: "auto",
      role: "dialog",
      aria: { label: "Your account" },
      on: { toggle: checkAdmin },
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
    { type: "button", class: "me-button", popovertarget: "user-menu", title: `Logged in as ${user}` },
    userAvatar(user),
    hidden(`Account menu, logged in as ${user}`),
  );

  function item(name, label, action, { staysOpen = false } = {}) {
    const onClick = () => (staysOpen || menu.hidePopover(), action());
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

  /** Checked when the menu opens, to save a request per page load. */
  async function checkAdmin({ newState }) {
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

  /** Show the number of invitations in the menu, and a dot on its button. */
  function showInvitations(count) {
    setText(invitationsLabel, count === 0 ? "Invitations" : `Invitations (${count})`);
    button.classList.toggle("has-news", count > 0);
    button.title = count === 0 ? `Logged in as ${user}` : plural(count, "invitation");
  }

  drawThemes();
  updatePush(push.state);
  return { button, element: menu, updatePush, showInvitations };
}

function applyTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}
