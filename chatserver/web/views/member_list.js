// Member list of a group, with links to user details, bans and group settings.

import { plural } from "../format.js";
import { chatTitle } from "../selectors.js";
import { userAvatar } from "./avatar.js";
import { createDialog } from "./dialog.js";
import { fill, h, iconButton, setText } from "./dom.js";

/** Return `{element, open(chat)}`. */
export function createMembers({ store, isManager, onDirect, onPerson, onBans, onGroupSettings }) {
  const dialog = createDialog({ title: "Members", class: "dialog-members" });
  const list = h("ul", { class: "suggestions" });
  let shown = null; // the group
  const linkButton = (text, open) => {
    const onClick = () => (dialog.close(), open(shown));
    return h("button", { type: "button", class: "button button-quiet", on: { click: onClick } }, text);
  };
  const foot = h(
    "div",
    { class: "dialog-foot" },
    linkButton("Group settings", onGroupSettings),
    linkButton("Banned users", onBans),
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
      title: `Message ${user}`,
      on: { click: onClick },
    };
    const about = iconButton("more", `About ${user}`, () => (dialog.close(), onPerson(id, user)));
    return h("div", { class: "member-line" }, h("button", props, userAvatar(user, "s"), name), about);
  }

  return { element: dialog.element, open };
}
