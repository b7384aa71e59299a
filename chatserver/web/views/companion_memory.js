// Dialog that lists what a companion remembers, with buttons to forget it and to switch it off.

import { fullTime } from "../format.js";
import { fill, h, iconButton } from "./dom.js";
import { button, createForm } from "./form_dialog.js";

/** Return `{element, open(companion, name)}`. */
export function createMemoryDialog({ memories }) {
  const form = createForm("Memory");
  let companion = null;
  let opened = 0; // answers for an earlier opening are dropped

  async function open(id, name) {
    companion = id;
    opened += 1;
    const mine = opened;
    form.showStatus("");
    form.heading.textContent = `What ${name} remembers`;
    fill(form.content, h("p", { class: "hint" }, "Loading…"));
    form.open();
    await form.attempt(async () => {
      const memory = await memories.get(id);
      if (mine === opened) draw(memory);
    });
  }

  function draw({ enabled, entries }) {
    const toggle = h("input", { type: "checkbox", checked: enabled, on: { change: onToggle } });
    const list = h("ul", { class: "memory-list", aria: { label: "Memories" } });
    list.append(...entries.map(item));
    fill(
      form.content,
      h("label", { class: "memory-switch" }, toggle, "Remember across sessions"),
      h(
        "p",
        { class: "hint" },
        enabled
          ? "The companion notes facts from your sessions and uses them in later ones."
          : "Remembering is off. The companion doesn't use or update these notes.",
      ),
      entries.length === 0 ? h("p", { class: "hint" }, "Nothing yet.") : list,
      entries.length === 0 ? null : button("Forget everything", onForgetAll, "button-danger"),
    );
  }

  function item({ id, kind, text, updated }) {
    const label = kind === "summary" ? "Earlier session · " : "";
    return h(
      "li",
      {},
      h(
        "div",
        {},
        h("p", { class: "memory-text", dir: "auto" }, text),
        h("p", { class: "memory-time" }, `${label}${fullTime(updated)}`),
      ),
      iconButton("trash", `Forget: ${text}`, () => run(() => memories.remove(companion, id))),
    );
  }

  function onToggle({ target }) {
    const enabled = target.checked;
    run(() => memories.setEnabled(companion, enabled));
  }

  function onForgetAll() {
    run(() => memories.removeAll(companion), "The companion has forgotten everything.");
  }

  /** Run a change, and draw the memory as it is then. */
  function run(change, status = "") {
    const [whom, mine] = [companion, opened];
    return form.attempt(async () => {
      try {
        await change();
        form.showStatus(status);
      } finally {
        const memory = await memories.get(whom);
        if (mine === opened) draw(memory);
      }
    });
  }

  return { element: form.element, open };
}
