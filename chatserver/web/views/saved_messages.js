// Saved messages: the sender, the time and the text, with buttons to open the chat and to remove it.

import { fullTime, listTime } from "../format.js";
import { userAvatar } from "./avatar.js";
import { fill, h, iconButton } from "./dom.js";

/** `attempt(action)` runs an action and shows its failure; `onChat(chat)` opens a chat. */
export function createSavedMessages({ social, attempt, onChat }) {
  const list = h("div", { class: "feed" });
  const more = h("button", { type: "button", class: "button button-quiet" }, "Show more");
  const note = h("p", { class: "feed-note" }, "No saved messages. Save one from its menu.");
  const heading = h("h3", { class: "saved-title" }, "Saved messages");
  const element = h(
    "section",
    { class: "feed-box", hidden: true, aria: { label: "Saved messages" } },
    heading,
    list,
    note,
    more,
  );
  let opened = 0; // responses to earlier openings are dropped

  async function open() {
    opened += 1;
    element.hidden = false;
    fill(list);
    note.hidden = more.hidden = true;
    await load(null);
  }

  function close() {
    opened += 1;
    element.hidden = true;
  }

  async function load(cursor) {
    const mine = opened;
    await attempt(async () => {
      const page = await social.savedMessages(cursor);
      if (mine !== opened) return;
      list.append(...page.items.map(({ message }) => card(message)));
      note.hidden = list.children.length > 0;
      more.hidden = page.next === null;
      more.onclick = () => load(page.next);
    });
  }

  function card(message) {
    const sentAt = message.ts / 1000;
    const time = h("time", { class: "post-time" }, listTime(sentAt, Date.now()));
    time.dateTime = new Date(sentAt).toISOString();
    time.title = fullTime(sentAt);
    const files = (message.attachments ?? []).map((file) => file.name).join(", ");
    const element = h(
      "article",
      { class: "post", aria: { label: `Message by ${message.sender}` } },
      h("span", { class: "post-face" }, userAvatar(message.sender)),
      h("header", { class: "post-head" }, h("bdi", { class: "post-name" }, message.sender), time),
      h("p", { class: "post-text", dir: "auto" }, message.body || files),
      h(
        "footer",
        { class: "post-foot" },
        h(
          "button",
          { type: "button", class: "link-button", on: { click: () => onChat(message.chat) } },
          "Open chat",
        ),
        iconButton("trash", "Remove from saved messages", () => onRemove(message, element), {
          class: "post-remove",
        }),
      ),
    );
    return element;
  }

  async function onRemove({ chat, seq }, element) {
    if (!(await attempt(() => social.setMessageSaved(chat, seq, false)))) return;
    element.remove();
    note.hidden = list.children.length > 0;
  }

  return { element, open, close };
}
