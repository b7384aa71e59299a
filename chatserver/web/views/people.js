// The pane of people and posts, beside the chats: the timeline (#/people), or somebody's profile
// (#/people/<user>), with what there is to do.

import { isId, plural } from "../format.js";
import { POST_CHARS_MAX, SocialFailed } from "../social.js";
import { userAvatar } from "./avatar.js";
import { createDialog } from "./dialog.js";
import { fill, h, hidden, icon, iconButton, setAria, setText } from "./dom.js";
import { createFeed } from "./feed.js";

/** `onBack()` leads to the chats, `onDirect(user)` to the chat with somebody; `go(user)` here. */
export function createPeople({ me, social, onBack, onDirect, go }) {
  const title = h("h2", { class: "people-title", tabindex: -1 });
  const subtitle = h("p", { class: "people-subtitle" });
  const error = h("p", { class: "form-error people-error", role: "alert" });
  const said = h("p", { class: "sr-only", role: "status" });
  const tabs = h(
    "nav",
    { class: "segments people-tabs", aria: { label: "People and posts" } },
    tab("Timeline", null),
    tab("Your profile", me),
  );
  const find = createFinder(go, say);
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
        ? "Nobody whom you follow has posted yet. Find somebody and follow."
        : "No posts yet.",
  });
  const element = h(
    "main",
    { class: "people", id: "people", hidden: true, aria: { label: "People and posts" } },
    h(
      "header",
      { class: "chat-head" },
      iconButton("back", "Back to the chats", onBack, { class: "back-button" }),
      h("div", { class: "chat-names" }, title, subtitle),
      iconButton("close", "Close", onBack, { class: "people-close" }),
    ),
    h(
      "div",
      { class: "people-scroller" },
      h("div", { class: "people-column" }, tabs, find, error, card.element, composer.element, feed.element),
    ),
    said,
    card.dialog,
  );
  let user = null; // whose profile it is; null: the timeline
  let isOpen = false;

  function tab(text, whose) {
    const onClick = () => go(whose);
    return h("button", { type: "button", class: "segment", data: { whose: whose ?? "" }, on: { click: onClick } }, text);
  }

  async function attempt(deed) {
    say("");
    try {
      await deed();
      return true;
    } catch (problem) {
      if (!(problem instanceof SocialFailed)) throw problem;
      say(problem.message);
      return false;
    }
  }

  function say(text) {
    setText(error, text);
    error.hidden = text === "";
  }

  function open(whose) {
    if (isOpen && whose === user) return;
    isOpen = true;
    user = whose;
    element.hidden = false;
    say("");
    for (const each of tabs.children) {
      setAria(each, { pressed: each.dataset.whose === (user ?? "") });
    }
    setText(title, user === null ? "Timeline" : user);
    setText(subtitle, user === null ? "Posts of those whom you follow, and yours" : "Profile");
    composer.element.hidden = user !== null && user !== me;
    card.show(user);
    feed.open((cursor) =>
      user === null ? social.timeline(me, cursor) : social.posts(user, cursor),
    );
    title.focus();
  }

  function close() {
    if (!isOpen) return;
    isOpen = false;
    element.hidden = true;
    feed.close();
  }

  /** One's own post shows at once, in the timeline, too, where it is not kept. */
  function onPosted(post) {
    feed.add(post);
    setText(said, "Your post is out.");
    if (user === me) card.refresh();
  }

  /** A signal of the server: somebody whom one follows has posted. */
  async function hear(frame) {
    if (!isOpen || (user !== null && user !== frame.from)) return;
    const whose = user;
    const post = await social.post(frame.from, frame.post).catch(() => null);
    if (post === null || whose !== user || !isOpen) return;
    feed.add(post);
    setText(said, `New post of ${post.name ?? post.user}`);
  }

  return { element, open, close, hear };
}

function createFinder(go, say) {
  const field = h("input", {
    class: "field-input",
    id: "find-person",
    type: "search",
    autocomplete: "off",
    autocapitalize: "none",
    spellcheck: "false",
    maxlength: 64,
    placeholder: "Find by name",
    aria: { label: "Find somebody" },
  });
  return h(
    "form",
    { class: "people-find", role: "search", novalidate: true, on: { submit: onSubmit } },
    field,
    h("button", { type: "submit", class: "button button-quiet" }, "Show"),
  );

  function onSubmit(event) {
    event.preventDefault();
    const name = field.value.trim();
    if (!isId(name)) return say("User names have 1 to 64 letters, digits, “-” or “_”.");
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
    placeholder: "What is new?",
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
  let key = null; // a second press of the button posts nothing twice
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

/** The head of a profile: name, words, counts, and the buttons to follow and to write. */
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
    h("div", { class: "profile-deeds" }, follow, write),
    about,
    h("p", { class: "profile-counts" }, followers, following, posts),
  );
  const dialog = createDialog({ title: "People", class: "dialog-people" });
  const found = h("ul", { class: "suggestions" });
  const more = h("button", { type: "button", class: "button button-quiet" }, "Show more");
  dialog.body.append(found, more);
  let wanted = null; // whose profile it is
  let shown = null; // as it is drawn

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
      if (wanted === user) take(profile);
    });
  }

  function take(profile) {
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

  /** Shows at once; the counts are the server's, read again. */
  async function onFollow() {
    const before = shown;
    const followed = !before.followed;
    take({ ...before, followed, followers: before.followers + (followed ? 1 : -1) });
    const isDone = await attempt(() =>
      followed ? social.follow(before.user) : social.unfollow(before.user),
    );
    if (shown?.user !== before.user) return;
    if (isDone) refresh();
    else take(before);
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
      if (page.items.length === 0 && cursor === null) found.append(h("li", {}, "Nobody yet."));
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
