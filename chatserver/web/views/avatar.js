// Avatars made of initials; the color is derived from the name.

import { hueOf, initials } from "../format.js";
import { chatTitle, peerOf } from "../selectors.js";
import { h } from "./dom.js";

/** The avatar of a user. Decorative: the name is shown next to it. */
export function userAvatar(user, size = "m") {
  return h(
    "span",
    { class: avatarClass(hueOf(user), size), aria: { hidden: true } },
    initials(user),
  );
}

/** The avatar of a group. */
export function groupAvatar(title, size = "m") {
  const props = { class: `${avatarClass(hueOf(title), size)} is-group`, aria: { hidden: true } };
  return h("span", props, initials(title));
}

/** The avatar of a chat: the peer's or the group's. */
export function chatAvatar(chat, me, size = "m") {
  if (chat.kind === "direct") return userAvatar(peerOf(chat, me), size);
  if (chat.kind === "companion") return userAvatar(chatTitle(chat, me), size);
  return groupAvatar(chatTitle(chat, me), size);
}

function avatarClass(hue, size) {
  return `avatar avatar-${size} hue-${hue}`;
}
