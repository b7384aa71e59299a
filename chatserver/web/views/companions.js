// Companion views: streaming response, session controls, and the list of companions.

import { chatTitle, peerOf } from "../selectors.js";
import { userAvatar } from "./avatar.js";
import { createMemoryDialog } from "./companion_memory.js";
import { createConfirm } from "./dialog.js";
import { fill, h, iconButton, setAria, setText } from "./dom.js";

/** The element of a streaming response: `{element, update(row)}`. Its text grows in place. */
export function responseView(first, actions) {
  const body = h("div", { class: "body" });
  const dots = h("span", { class: "dots", aria: { hidden: true } }, h("i"), h("i"), h("i"));
  const tool = h("p", { class: "answer-tool", role: "status", hidden: true });
  const bubble = h("div", { class: "bubble answer", dir: "auto" }, dots, body, tool);
  const stop = h(
    "button",
    { type: "button", class: "stop-button", on: { click: onStop } },
    h("span", { class: "stop-sign", aria: { hidden: true } }),
    h("span", {}, "Stop"),
  );
  const element = h(
    "li",
    { class: "row message is-first is-last row-answer", aria: { busy: "true" } },
    h("div", { class: "column" }, h("div", { class: "line" }, bubble), stop),
  );
  let text = "";

  function onStop() {
    stop.disabled = true;
    setText(stop.lastChild, "Stopping…");
    actions.stop().catch(() => {
      stop.disabled = false;
      setText(stop.lastChild, "Stop");
    });
  }

  function update(row) {
    // Existing text keeps its node, so that a selection survives.
    if (row.text.startsWith(text)) body.append(row.text.slice(text.length));
    else fill(body, row.text);
    text = row.text;
    body.normalize();
    dots.hidden = text !== "";
    tool.hidden = row.tool === null;
    setText(tool, row.tool === null ? "" : `Using ${row.tool}…`);
    stop.hidden = row.isOver;
    setAria(element, { label: `${row.name} is responding` });
  }
  update(first);
  return { element, update };
}

/** Buttons for the header of a companion chat, and the footer of a chat whose session has ended. */
export function createSessionControls({ store, client, newId, onOpen, memories }) {
  const renew = iconButton("compose", "New session", () => run(true));
  const end = iconButton("close", "End this session", () => confirm.open());
  const confirm = createConfirm({
    title: "End this session?",
    text: "You can still read the messages, but the companion will no longer respond in this session.",
    yes: "End session",
    option: "Also forget what the companion learned in this session",
    onYes: (_, isForgotten) => run(false, isForgotten),
  });
  const again = h(
    "button",
    { type: "button", class: "button", on: { click: () => run(true) } },
    "Start a new session",
  );
  const trouble = h("p", { class: "session-trouble", role: "alert", hidden: true });
  const memory = createMemoryDialog({ memories });
  const remembered = iconButton("bookmark", "Memory", () =>
    memory.open(peerOf(chat, store.state.me), chatTitle(chat, store.state.me)),
  );
  const buttons = h("div", { class: "session-controls" }, remembered, renew, end);
  const over = h(
    "div",
    { class: "session-over" },
    h("p", {}, "This session has ended. You can still read its messages."),
    trouble,
    again,
  );
  let chat = null;

  function update(state, shown) {
    const isSession = shown.kind === "companion";
    if (shown.id !== chat?.id) showError("");
    chat = shown;
    buttons.hidden = !isSession;
    renew.hidden = end.hidden = shown.isEnded;
    over.hidden = !isSession || !shown.isEnded;
  }

  async function run(isRenewal, isForgotten = false) {
    const companion = peerOf(chat, store.state.me);
    for (const button of [renew, end, again]) button.disabled = true;
    showError("");
    try {
      if (!isRenewal) await client.endSession(companion, chat.id, isForgotten);
      else onOpen(await client.startSession(companion, newId(), { isRenewal: true }));
    } catch (problem) {
      showError(explain(problem));
    } finally {
      for (const button of [renew, end, again]) button.disabled = false;
    }
  }

  function showError(text) {
    setText(trouble, text);
    trouble.hidden = text === "";
  }

  return { buttons, over, dialogs: [confirm.element, memory.element], update };
}

/** The available companions as buttons; `load()` fetches them. */
export function createCompanionList({ client, onChoose }) {
  const list = h("ul", { class: "suggestions", aria: { label: "Companions" } });
  const note = h("p", { class: "companion-note", role: "status" });
  const element = h("div", { class: "companions" }, list, note);

  async function load() {
    fill(list);
    setText(note, "Loading…");
    try {
      const found = await client.listCompanions();
      fill(list, ...found.map(line));
      setText(note, found.length === 0 ? "No companions available." : "");
    } catch (problem) {
      setText(note, explain(problem));
    }
    note.hidden = note.textContent === "";
  }

  function line(companion) {
    const props = {
      type: "button",
      class: "suggestion",
      aria: { label: `${companion.name}, AI companion` },
      on: { click: () => onChoose(companion) },
    };
    const name = h("bdi", {}, companion.name);
    return h("li", {}, h("button", props, userAvatar(companion.name, "s"), name));
  }

  return { element, load };
}

function explain({ code, message }) {
  if (code === "not_found") return "This companion no longer exists.";
  if (code === "disconnected" || code === "timeout") {
    return "Can't reach the server. Check your connection and try again.";
  }
  return `Request failed: ${message}.`;
}
