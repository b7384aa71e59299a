// Social pane: the timeline (#/people), a user's profile (#/people/<user>), or favorites (#/saved).

import { isId, plural } from "../format.js";
import { POST_CHARS_MAX, SocialFailed } from "../social.js";
import { userAvatar } from "./avatar.js";
import { createDialog } from "./dialog.js";
import { fill, h, hidden, icon, iconButton, setAria, setText } from "./dom.js";
import { createFeed } from "./feed.js";
import { createSavedMessages } from "./saved_messages.js";

/** Opened in place of a user: the saved posts and messages. No user has this id. */
export const SAVED = ":saved";

/** `onBack()` returns to the chats, `onDirect(user)` opens a direct chat, `onChat(chat)` a chat, `go(user)` a profile. */
export function createSocialPane({ me, social, onBack, onDirect, onChat, go }) {
  const title = h("h2", { class: "people-title", tabindex: -1 });
  const subtitle = h("p", { class: "people-subtitle" });
  const error = h("p", { class: "form-error people-error", role: "alert" });
  const announcement = h("p", { class: "sr-only", role: "status" });
  const tabs = h(
    "nav",
    { class: "segments people-tabs", aria: { label: "People and posts" } },
    tab("Timeline", null),
    tab("Your profile", me),
    tab("Saved", SAVED),
  );
  const find = createFinder(go, showError);
  const composer = createPostForm({ social, attempt, onPosted });
  const card = createCard({ me, social, attempt, go, onDirect });
  const feed = createFeed({
    me,
    social,
    attempt,
    onPerson: go,
    label: "Posts",
    empty: () =>
      user === null
        ? "No posts yet. Follow people to see their posts here."
        : user === SAVED
          ? "No saved posts."
          : "No posts yet.",
  });
  const savedMessages = createSavedMessages({ social, attempt, onChat });
  const element = h(
    "main",
    { class: "people", id: "people", hidden: true, aria: { label: "People and posts" } },
    h(
      "header",
      { class: "chat-head" },
      iconButton("back", "Back to chats", onBack, { class: "back-button" }),
      h("div", { class: "chat-names" }, title, subtitle),
      iconButton("close", "Close", onBack, { class: "people-close" }),
    ),
    h(
      "div",
      { class: "people-scroller" },
      h("div", { class: "people-column" }, tabs, find, error, card.element, composer.element, feed.element, savedMessages.element),
    ),
    announcement,
    card.dialog,
  );
  let user = null; // whose profile is shown; null: the timeline
  let isOpen = false;

  function tab(text, whose) {
    const onClick = () => go(whose);
    return h("button", { type: "button", class: "segment", data: { whose: whose ?? "" }, on: { click: onClick } }, text);
  }

  async function attempt(action) {
    showError("");
    try {
      await action();
      return true;
    } catch (problem) {
      if (!(problem instanceof SocialFailed)) throw problem;
      showError(problem.message);
      return false;
    }
  }

  function showError(text) {
    setText(error, text);
    error.hidden = text === "";
  }

  function open(whose) {
    if (isOpen && whose === user) return;
    isOpen = true;
    user = whose;
    element.hidden = false;
    showError("");
    for (const each of tabs.children) {
      setAria(each, { pressed: each.dataset.whose === (user ?? "") });
    }
    const isSaved = user === SAVED;
    setText(title, user === null ? "Timeline" : isSaved ? "Saved" : user);
    setText(
      subtitle,
      user === null ? "Posts from you and people you follow" : isSaved ? "Only visible to you" : "Profile",
    );
    composer.element.hidden = user !== null && user !== me;
    card.show(isSaved ? null : user);
    feed.open((cursor) =>
      user === null
        ? social.timeline(me, cursor)
        : isSaved
          ? social.savedPosts(cursor)
          : social.posts(user, cursor),
    );
    if (isSaved) void savedMessages.open();
    else savedMessages.close();
    title.focus();
  }

  function close() {
    if (!isOpen) return;
    isOpen = false;
    element.hidden = true;
    feed.close();
    savedMessages.close();
  }

  /** Own posts are shown at once, in the timeline too, which does not store them. */
  function onPosted(post) {
    feed.add(post);
    setText(announcement, "Posted.");
    if (user === me) card.refresh();
  }

  /** Handle the server's signal that a followed user has posted. */
  async function handlePost(frame) {
    if (!isOpen || (user !== null && user !== frame.from)) return;
    const whose = user;
    const post = await social.post(frame.from, frame.post).catch(() => null);
    if (post === null || whose !== user || !isOpen) return;
    feed.add(post);
    setText(announcement, `New post by ${post.name ?? post.user}`);
  }

  return { element, open, close, handlePost };
}

function createFinder(go, showError) {
  const field = h("input", {
    class: "field-input",
    id: "find-person",
    type: "search",
    autocomplete: "off",
    autocapitalize: "none",
    spellcheck: "false",
    maxlength: 64,
    placeholder: "Find by username",
    aria: { label: "Find people" },
  });
  return h(
    "form",
    { class: "people-find", role: "search", novalidate: true, on: { submit: onSubmit } },
    field,
    h("button", { type: "submit", class: "button button-quiet" }, "Find"),
  );

  function onSubmit(event) {
    event.preventDefault();
    const name = field.value.trim();
    if (!isId(name)) return showError("Usernames must be 1 to 64 characters: letters, digits, “-” and “_”.");
    field.value = "";
    go(name);
  }
}

function createPostForm({ social, attempt, onPosted }) {
  const text = h("textarea", {
    class: "field-input",
    id: "post-text",
    rows: 3,
    maxlength: POST_CHARS_MAX,
    placeholder: "What's new?",
    dir: "auto",
    on: { input: update, keydown: onKey },
  });
  const left = h("span", { class: "hint", aria: { live: "polite" } });
  const submit = h("button", { type: "submit", class: "button" }, "Post");
  const element = h(
    "form",
    { class: "post-form", novalidate: true, on: { submit: onSubmit } },
    h("label", { class: "sr-only", for: "post-text" }, "New post"),
    text,
    h("div", { class: "dialog-foot" }, left, submit),
  );
  let key = null; // idempotency key: submitting twice posts once
  let isBusy = false;

  function update() {
    const count = POST_CHARS_MAX - text.value.length;
    setText(left, count < 200 ? `${plural(count, "character")} left` : "");
    submit.disabled = isBusy || text.value.trim() === "";
    key = null;
  }

  function onKey(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) onSubmit(event);
  }

  async function onSubmit(event) {
    event.preventDefault();
    if (submit.disabled) return;
    isBusy = submit.disabled = true;
    const content = text.value;
    key ??= crypto.randomUUID();
    const isDone = await attempt(async () => onPosted(await social.create(content, key)));
    isBusy = false;
    if (isDone) text.value = "";
    if (isDone) update();
    else submit.disabled = false;
  }

  update();
  return { element };
}

/** Profile card: name, bio, counts, and the buttons to follow and to message. */
function createCard({ me, social, attempt, go, onDirect }) {
  const face = h("span", { class: "profile-face" });
  const name = h("h3", { class: "profile-name" });
  const handle = h("bdi", { class: "profile-user" });
  const about = h("p", { class: "profile-about", dir: "auto" });
  const followers = h("button", { type: "button", class: "link-button", on: { click: () => list("followers") } });
  const following = h("button", { type: "button", class: "link-button", on: { click: () => list("following") } });
  const posts = h("span", {});
  const follow = h("button", { type: "button", class: "button follow-button", on: { click: onFollow } });
  const write = h(
    "button",
    { type: "button", class: "button button-quiet", on: { click: () => onDirect(shown.user) } },
    "Message",
  );
  const mark = h("span", { class: "profile-mark" }, icon("check"), "Follows you");
  const element = h(
    "section",
    { class: "profile", hidden: true, aria: { label: "Profile" } },
    face,
    h("div", { class: "profile-names" }, h("div", {}, name, handle), mark),
    h("div", { class: "profile-actions" }, follow, write),
    about,
    h("p", { class: "profile-counts" }, followers, following, posts),
  );
  const dialog = createDialog({ title: "People", class: "dialog-people" });
  const found = h("ul", { class: "suggestions" });
  const more = h("button", { type: "button", class: "button button-quiet" }, "Show more");
  dialog.body.append(found, more);
  let wanted = null; // user whose profile is loading
  let shown = null; // the profile as drawn

  async function show(user) {
    element.hidden = true;
    wanted = user;
    shown = null;
    if (user !== null) await refresh();
  }

  async function refresh() {
    const user = wanted;
    await attempt(async () => {
      const profile = await social.profile(user);
      if (wanted === user) draw(profile);
    });
  }

  function draw(profile) {
    shown = profile;
    element.hidden = false;
    fill(face, userAvatar(profile.user, "xl"));
    setText(name, profile.name ?? profile.user);
    setText(handle, `@${profile.user}`);
    setText(about, profile.about ?? "");
    about.hidden = profile.about === null;
    setText(followers, plural(profile.followers, "follower"));
    setText(following, `${profile.following} following`);
    setText(posts, plural(profile.posts, "post"));
    mark.hidden = !profile.follows;
    follow.hidden = write.hidden = profile.user === me;
    setText(follow, profile.followed ? "Following" : "Follow");
    follow.classList.toggle("button-quiet", profile.followed);
    setAria(follow, { pressed: profile.followed });
  }

  /** Optimistic update. The counts are not reloaded: the server counts a follow some seconds later. */
  async function onFollow() {
    const before = shown;
    const followed = !before.followed;
    draw({ ...before, followed, followers: before.followers + (followed ? 1 : -1) });
    const isDone = await attempt(() =>
      followed ? social.follow(before.user) : social.unfollow(before.user),
    );
    if (!isDone && shown?.user === before.user) draw(before);
  }

  async function list(kind) {
    setText(dialog.heading, kind === "followers" ? "Followers" : "Following");
    fill(found);
    more.hidden = true;
    await addPage(kind, shown.user, null);
    dialog.open();
  }

  async function addPage(kind, user, cursor) {
    await attempt(async () => {
      const page = await social[kind](user, cursor);
      found.append(...page.items.map((each) => h("li", {}, line(each))));
      if (page.items.length === 0 && cursor === null) found.append(h("li", {}, "No one yet."));
      more.hidden = page.next === null;
      more.onclick = () => addPage(kind, user, page.next);
    });
  }

  function line(each) {
    const onClick = () => (dialog.close(), go(each.user));
    return h(
      "button",
      { type: "button", class: "suggestion", on: { click: onClick } },
      userAvatar(each.user, "s"),
      h("bdi", {}, each.name ?? each.user),
      each.name === null ? hidden("") : h("small", {}, `@${each.user}`),
    );
  }

  return { element, dialog: dialog.element, show, refresh };
}
