// Messages and the other rows of the timeline. A row keeps its element as long as its key; changes
// are made in place, so that a text selection survives.

import {
  clockTime,
  dayLabel,
  fullTime,
  isOnlyEmoji,
  linkPieces,
  nameList,
  hueOf,
} from "../format.js";
import { fileNames } from "../state/expiry.js";
import { groupAvatar, userAvatar } from "./avatar.js";
import { fill, h, hidden, icon, iconButton, setAria } from "./dom.js";
import { fileNodes } from "./files.js";
import { REACTION_NAMES } from "./message_menu.js";

const MARKS = {
  sending: { icon: "clock", label: "Sending" },
  sent: { icon: "check", label: "Sent" },
  stored: { icon: "double", label: "Sent and stored" },
  read: { icon: "double", label: "Read" },
  failed: { icon: "alert", label: "Not sent" },
};

/** Delivery status as a labeled icon. */
export function markIcon(mark, readers = "") {
  const { icon: name, label } = MARKS[mark];
  const text = mark === "read" && readers ? `Read by ${nameList(readers.split(" "), 4)}` : label;
  return h("span", { class: `mark mark-${mark}`, title: text }, icon(name), hidden(text));
}

/** Text with URLs as links. */
function bodyNodes(body) {
  return linkPieces(body).map(({ text, href }) => {
    if (href === undefined) return document.createTextNode(text);
    return h("a", { href, target: "_blank", rel: "noopener noreferrer nofollow" }, text);
  });
}

/**
 * The element of a message row: `{element, update(row)}`.
 *
 * `actions`: reply(row), copy(row), menu(row, button), react(row, emoji), retry(ref), discard(ref),
 * goTo(seq), link(row, file, isThumb).
 */
export function messageView(first, actions) {
  let row = first;
  const body = h("div", { class: "body" }, ...bodyNodes(row.body));
  let text = row.body;
  const foot = h("span", { class: "foot" });
  const bubble = h("div", { class: "bubble", dir: "auto" });
  const more = iconButton("more", "More", () => actions.menu(row, more), {
    tabindex: -1,
    class: "more-button",
    aria: { label: "More", haspopup: "menu" },
  });
  const tools = h(
    "div",
    { class: "tools" },
    iconButton("reply", "Reply", () => actions.reply(row), { tabindex: -1 }),
    iconButton("copy", "Copy text", () => actions.copy(row), { tabindex: -1 }),
    more,
  );
  const face = h("span", { class: "face" });
  const trouble = h("div", { class: "trouble" });
  const chips = h("div", { class: "reactions" });
  const files = h("div", { class: "files" });
  let filed = "";
  let drawn = null;
  const line = h("div", { class: "line" }, bubble, tools);
  const column = h("div", { class: "column" }, line, chips, trouble);
  const on = { focusin: () => (more.tabIndex = 0), focusout: () => (more.tabIndex = -1) };
  const element = h("li", { class: "row message", tabindex: -1, on }, face, column);

  const link = (id, isThumb) => actions.link(row, id, isThumb);
  const late = (file) => actions.late(row, file);

  function update(next) {
    row = next;
    // Only if changed: a selected text must keep its node.
    if (row.body !== text) fill(body, ...bodyNodes(row.body));
    text = row.body;
    element.classList.toggle("is-emoji", isOnlyEmoji(row.body));
    element.classList.toggle("is-gone", row.isGone);
    const flags = { own: "is-own", isFirst: "is-first", isLast: "is-last", isGroup: "in-group" };
    for (const [name, value] of Object.entries(flags)) element.classList.toggle(value, row[name]);
    element.classList.toggle("is-failed", row.mark === "failed");
    if (row.seq === null) delete element.dataset.seq;
    else element.dataset.seq = row.seq;
    const sender = senderName(row);
    const quote = quoteNode(row, actions);
    // Only if changed: a loaded image must not be loaded again.
    if (row.files !== filed) fill(files, ...fileNodes(filesIn(row.files), link, late));
    filed = row.files;
    fill(bubble, sender, quote, filed === "" ? null : files, row.body === "" ? null : body, foot);
    fillFoot(foot, row);
    fill(face, row.isGroup && !row.own && row.isLast ? userAvatar(row.sender, "s") : null);
    fillTrouble(trouble, row, actions);
    tools.hidden = row.isGone;
    more.hidden = row.seq === null;
    // Only if changed: a chip that was just pressed must keep the focus.
    if (drawn !== row.reactions) fillReactions(chips, row.reactions, (to) => actions.react(row, to));
    drawn = row.reactions;
    setAria(element, { label: spokenLabel(row) });
  }
  update(row);
  return { element, update };
}

function senderName(row) {
  if (row.own || !row.isGroup || !row.isFirst) return null;
  return h("div", { class: `sender ink-${hueOf(row.sender)}` }, h("bdi", {}, row.sender));
}

function quoteNode(row, actions) {
  if (row.quoteOf === null) return null;
  const who = row.quoteFrom === null ? null : h("bdi", { class: "quote-from" }, row.quoteFrom);
  const props = {
    type: "button",
    class: "quote",
    tabindex: -1,
    title: "Go to message",
    on: { click: () => actions.goTo(row.quoteOf) },
  };
  return h("button", props, who, h("span", { class: "quote-text", dir: "auto" }, row.quoteText));
}

function fillFoot(foot, row) {
  foot.hidden = !row.hasFoot;
  fill(
    foot,
    row.isEdited ? h("span", { class: "edited" }, "edited") : null,
    row.note === "" ? null : h("span", { class: "edited" }, row.note),
    h(
      "time",
      { datetime: new Date(row.at).toISOString(), title: fullTime(row.at) },
      clockTime(row.at),
    ),
    row.mark === null ? null : markIcon(row.mark, row.readers),
  );
}

function fillTrouble(trouble, row, actions) {
  trouble.hidden = row.error === null;
  if (row.error === null) return fill(trouble);
  const button = (label, action) =>
    h(
      "button",
      { type: "button", class: "link-button", on: { click: () => action(row.troubleRef) } },
      label,
    );
  return fill(
    trouble,
    h("span", {}, row.error),
    button("Try again", actions.retry),
    button(row.mark === "failed" ? "Delete" : "Dismiss", actions.discard),
  );
}

function filesIn(text) {
  return text === "" ? [] : JSON.parse(text);
}

function reactionsIn(text) {
  return text === "" ? [] : JSON.parse(text);
}

/** "thumbs up by bob and you" */
function spokenReaction([emoji, , users]) {
  return `${REACTION_NAMES.get(emoji) ?? emoji} by ${nameList(users, 4)}`;
}

/** Draw the reactions as chips that toggle the user's own. */
function fillReactions(chips, text, react) {
  chips.hidden = text === "";
  const chip = ([emoji, isOwn, users]) =>
    h(
      "button",
      {
        type: "button",
        class: "chip",
        tabindex: -1,
        title: nameList(users, 6),
        aria: { label: spokenReaction([emoji, isOwn, users]), pressed: isOwn },
        on: { click: () => react(isOwn ? "" : emoji) },
      },
      h("span", { aria: { hidden: true } }, emoji),
      h("span", { class: "chip-count" }, String(users.length)),
    );
  fill(chips, ...reactionsIn(text).map(chip));
}

/** The label of a message for screen readers. */
function spokenLabel(row) {
  const who = row.own ? "You" : row.name;
  const mark = row.mark === null ? "" : `, ${MARKS[row.mark].label.toLowerCase()}`;
  const when = `${dayLabel(row.at, Date.now())} ${clockTime(row.at)}`;
  const reply = row.quoteOf === null ? "" : ` in reply to ${row.quoteFrom ?? "an earlier message"}`;
  const edited = `${row.isEdited ? ", edited" : ""}${row.note === "" ? "" : `, ${row.note}`}`;
  const reactions = reactionsIn(row.reactions).map((each) => `, ${spokenReaction(each)}`);
  const names = fileNames(filesIn(row.files));
  const what = [row.body.slice(0, 400), names].filter(Boolean).join(", ");
  return `${who}${reply}: ${what}${edited}, ${when}${mark}${reactions.join("")}`;
}

/** The element of any other row. */
export function plainView(first, actions) {
  const element = h("li", { class: `row row-${first.type}` });
  function update(row) {
    element.className = `row row-${row.type}`;
    if (row.seq !== undefined) element.dataset.seq = row.seq;
    fill(element, ...PLAIN[row.type](row, actions));
  }
  update(first);
  return { element, update };
}

const PLAIN = {
  day: ({ label }) => [h("span", { class: "day" }, label)],
  system: ({ text }) => [h("span", { class: "system" }, text)],
  unread: () => [h("span", { class: "unread-line" }, "New messages")],
  loading: () => [
    h("span", { class: "spinner", aria: { hidden: true } }),
    hidden("Loading messages"),
  ],
  beginning: (row) => [
    h(
      "div",
      { class: "beginning" },
      row.kind !== "group" ? userAvatar(row.title, "xl") : groupAvatar(row.title, "xl"),
      h("strong", {}, h("bdi", {}, row.title)),
      h("span", {}, row.isEmpty ? "No messages yet. Say hello!" : "This is the beginning of the chat."),
    ),
  ],
  trouble: ({ text }, actions) => [
    h("span", { class: "load-trouble", role: "alert" }, text),
    h("button", { type: "button", class: "link-button", on: { click: actions.reload } }, "Try again"),
  ],
  typing: ({ users }) => [
    h("span", { class: "bubble typing", aria: { hidden: true } }, h("i"), h("i"), h("i")),
    h("span", { class: "typing-names" }, typingNames(users)),
  ],
};

function typingNames(users) {
  const names = users.split(" ");
  return `${nameList(names, 2)} ${names.length === 1 ? "is" : "are"} typing…`;
}
