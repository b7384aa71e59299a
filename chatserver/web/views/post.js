// A post: author, time, text, and the buttons to like and to save it.

import { fullTime, listTime, plural } from "../format.js";
import { userAvatar } from "./avatar.js";
import { h, hidden, icon, iconButton, setAria, setText } from "./dom.js";

/** `onLike(post, isLiked)`, `onSave(post, isSaved)`, `onPerson(user)`, `onRemove(post)` of own posts. */
export function createPost({ me, onLike, onSave, onPerson, onRemove }) {
  let shown = null;
  const name = h("bdi", { class: "post-name" });
  const who = h("button", { type: "button", class: "post-who", on: { click: () => onPerson(shown.user) } }, name);
  const handle = h("bdi", { class: "post-user" });
  const time = h("time", { class: "post-time" });
  const edited = h("span", { class: "post-edited" }, "edited");
  const text = h("p", { class: "post-text", dir: "auto" });
  const count = h("span", { class: "like-count", aria: { hidden: true } });
  const likeLabel = hidden("");
  const like = h(
    "button",
    { type: "button", class: "like-button", on: { click: () => onLike(shown, !shown.liked) } },
    icon("heart"),
    count,
    likeLabel,
  );
  const save = iconButton("bookmark", "Save", () => onSave(shown, !shown.favorite), { class: "save-button" });
  const face = h("span", { class: "post-face" });
  const remove = iconButton("trash", "Delete this post", () => onRemove(shown), { class: "post-remove" });
  const element = h(
    "article",
    { class: "post" },
    face,
    h("header", { class: "post-head" }, who, handle, time, edited),
    text,
    h("footer", { class: "post-foot" }, like, save, remove),
  );

  function update(post, now) {
    if (shown?.user !== post.user) face.replaceChildren(userAvatar(post.user));
    shown = post;
    setText(name, post.name ?? post.user);
    setText(handle, post.name === null ? "" : `@${post.user}`);
    setText(time, listTime(post.created, now));
    time.dateTime = new Date(post.created).toISOString();
    time.title = fullTime(post.created);
    edited.hidden = post.edited === null;
    setText(text, post.content);
    setText(count, post.likes > 0 ? String(post.likes) : "");
    setText(likeLabel, `Like, ${plural(post.likes, "like")}`);
    setAria(like, { pressed: post.liked });
    setAria(save, { pressed: post.favorite });
    remove.hidden = post.user !== me;
    setAria(element, { label: `Post by ${post.name ?? post.user}` });
  }

  return { element, update };
}
