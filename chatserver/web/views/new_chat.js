// New chat dialog: direct chat, group, or companion session.

import { NAME_CHARS_MAX, isId } from "../format.js";
import { knownPeople } from "../selectors.js";
import { userAvatar } from "./avatar.js";
import { createCompanionList } from "./companions.js";
import { createDialog } from "./dialog.js";
import { fill, h, hidden, icon, setAria, setText } from "./dom.js";

const SUGGESTIONS_MAX = 6;
const NAME_RULE = "Usernames must be 1 to 64 characters: letters, digits, “-” and “_”.";

export function createNewChat({ store, client, demoUsers, newId, onOpen }) {
  const dialog = createDialog({ title: "New chat", class: "dialog-new" });
  const modes = {
    direct: modeButton("direct", "Direct"),
    group: modeButton("group", "Group"),
    companion: modeButton("companion", "Companion"),
  };
  const companions = createCompanionList({ client, onChoose: startSession });
  const people = h("input", {
    class: "field-input",
    id: "new-people",
    autocomplete: "off",
    autocapitalize: "none",
    spellcheck: "false",
    maxlength: 64,
    aria: { describedby: "new-error" },
    on: { input: onInput, keydown: onPeopleKey },
  });
  const peopleLabel = h("label", { for: "new-people" });
  const chips = h("ul", { class: "chips", aria: { label: "Members" } });
  const name = h("input", {
    class: "field-input",
    id: "new-name",
    autocomplete: "off",
    maxlength: NAME_CHARS_MAX,
    placeholder: "Optional",
  });
  const nameBox = h("div", { class: "field" }, h("label", { for: "new-name" }, "Group name"), name);
  const suggestions = h("ul", { class: "suggestions", aria: { label: "Suggestions" } });
  const error = h("p", { class: "form-error", id: "new-error", role: "alert" });
  const submit = h("button", { type: "submit", class: "button" });
  const peopleBox = h("div", { class: "field" }, peopleLabel, chips, people);
  const foot = h("div", { class: "dialog-foot" }, submit);
  const form = h(
    "form",
    { novalidate: true, on: { submit: onSubmit } },
    h(
      "div",
      { class: "segments", role: "group", aria: { label: "Chat type" } },
      ...Object.values(modes),
    ),
    nameBox,
    peopleBox,
    suggestions,
    companions.element,
    error,
    foot,
  );
  dialog.body.append(form);
  let mode = "direct";
  let members = [];
  let ref = null; // idempotency key of the group: submitting twice creates one group
  let isBusy = false;

  function modeButton(id, label) {
    const onClick = () => setMode(id);
    return h("button", { type: "button", class: "segment", on: { click: onClick } }, label);
  }

  function setMode(next) {
    mode = next;
    const isGroup = mode === "group";
    for (const [id, button] of Object.entries(modes)) setAria(button, { pressed: id === mode });
    const isCompanion = mode === "companion";
    nameBox.hidden = !isGroup;
    chips.hidden = !isGroup;
    for (const part of [peopleBox, foot]) part.hidden = isCompanion;
    companions.element.hidden = !isCompanion;
    if (isCompanion) companions.load();
    setText(peopleLabel, isGroup ? "Add members by username" : "Username");
    showError("");
    draw();
  }

  function open(wanted = "direct") {
    members = [];
    ref = newId();
    people.value = "";
    name.value = "";
    setMode(wanted);
    dialog.open();
    people.focus();
  }

  // ── drawing ───────────────────────────────────────────────────────────────────────────────────

  function draw() {
    const isGroup = mode === "group";
    setText(submit, isBusy ? "Creating…" : isGroup ? "Create group" : "Start chat");
    submit.disabled = isBusy || (isGroup ? members.length === 0 && !typed() : !typed());
    fill(chips, ...members.map(chip));
    fill(suggestions, ...suggested().map(suggestion));
    suggestions.hidden = mode === "companion" || suggestions.childElementCount === 0;
  }

  function chip(user) {
    const remove = {
      type: "button",
      class: "chip",
      on: { click: () => (setMembers(members.filter((each) => each !== user)), people.focus()) },
    };
    const text = h("bdi", {}, user);
    return h(
      "li",
      {},
      h("button", remove, userAvatar(user, "xs"), text, icon("close"), hidden("Remove")),
    );
  }

  function suggested() {
    const wanted = typed().toLowerCase();
    const { me } = store.state;
    const everyone = new Set([...knownPeople(store.state), ...demoUsers]);
    return [...everyone]
      .filter((user) => user !== me && !(mode === "group" && members.includes(user)))
      .filter((user) => user.toLowerCase().includes(wanted))
      .slice(0, SUGGESTIONS_MAX);
  }

  function suggestion(user) {
    const props = { type: "button", class: "suggestion", on: { click: () => choose(user) } };
    return h("li", {}, h("button", props, userAvatar(user, "s"), h("bdi", {}, user)));
  }

  // ── actions ───────────────────────────────────────────────────────────────────────────────────

  function typed() {
    return people.value.trim().replace(/^@/, "");
  }

  function choose(user) {
    if (mode === "direct") return startDirect(user);
    setMembers([...members, user]);
    people.value = "";
    people.focus();
    return draw();
  }

  function setMembers(next) {
    members = next;
    ref = newId(); // other members: another group
    showError("");
    draw();
  }

  function onInput() {
    showError("");
    if (mode === "group" && /[\s,;]$/.test(people.value)) addTyped();
    draw();
  }

  /** Add the typed name as a member; return whether the field is empty now. */
  function addTyped() {
    const user = typed().replace(/[\s,;]+$/, "");
    if (user === "") return true;
    if (!isId(user)) {
      showError(NAME_RULE);
      return false;
    }
    people.value = "";
    if (user !== store.state.me && !members.includes(user)) setMembers([...members, user]);
    return true;
  }

  function onPeopleKey(event) {
    if (event.key === "Enter" && mode === "group" && typed() !== "") {
      event.preventDefault();
      addTyped();
      draw();
    } else if (event.key === "Backspace" && people.value === "" && mode === "group") {
      setMembers(members.slice(0, -1));
    }
  }

  function onSubmit(event) {
    event.preventDefault();
    if (isBusy) return;
    if (mode === "direct") startDirect(typed());
    else if (mode === "group" && addTyped()) startGroup();
  }

  function startDirect(user) {
    if (user === "") return showError("Enter a username.");
    if (!isId(user)) return showError(NAME_RULE);
    if (user === store.state.me) return showError("That's you. Enter someone else's username.");
    return run(() => client.openDirect(user), user);
  }

  function startGroup() {
    if (members.length === 0) return showError("Add at least one member.");
    return run(() => client.createGroup({ ref, name: name.value.trim(), members }), null);
  }

  function startSession({ id, name: title }) {
    return isBusy ? undefined : run(() => client.startSession(id, ref), title);
  }

  async function run(work, user) {
    isBusy = true;
    draw();
    try {
      const chat = await work();
      dialog.close();
      onOpen(chat);
    } catch (problem) {
      showError(explain(problem, user));
    } finally {
      isBusy = false;
      draw();
    }
  }

  function showError(text) {
    setText(error, text);
    error.hidden = text === "";
    setAria(people, { invalid: text === "" ? null : "true" });
  }

  /** Start a direct chat with a user named elsewhere, such as in the search field. */
  function direct(user) {
    open("direct");
    people.value = user;
    draw();
    startDirect(typed());
  }

  return { element: dialog.element, open, direct };
}

function explain({ code, message }, user) {
  if (code === "not_found") {
    const name = user ?? message.split(":")[0]; // for a group, the server names the unknown user
    return `User “${name}” not found. Check the spelling: usernames are case-sensitive.`;
  }
  if (code === "disconnected" || code === "timeout") {
    return "Can't reach the server. Check your connection and try again.";
  }
  return `Request failed: ${message}.`;
}
