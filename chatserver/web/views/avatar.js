// Round pictures made of initials: the same name has the same colour everywhere.

import { hueOf, initials } from "../format.js";
import { chatTitle, peerOf } from "../select.js";
import { h } from "./dom.js";

/** The picture of a user. Decorative: the name stands beside it. */
export function userAvatar(user, size = "m") {
  return h(
    "span",
    { class: avatarClass(hueOf(user), size), aria: { hidden: true } },
    initials(user),
  );
}

/** The picture of a group. */
export function groupAvatar(title, size = "m") {
  const props = { class: `${avatarClass(hueOf(title), size)} is-group`, aria: { hidden: true } };
  return h("span", props, initials(title));
}

/** The picture of a chat: the other side's, or the group's. */
export function chatAvatar(chat, me, size = "m") {
  if (chat.kind === "direct") return userAvatar(peerOf(chat, me), size);
  if (chat.kind === "companion") return userAvatar(chatTitle(chat, me), size);
  return groupAvatar(chatTitle(chat, me), size);
}

function avatarClass(hue, size) {
  return `avatar avatar-${size} hue-${hue}`;
}
