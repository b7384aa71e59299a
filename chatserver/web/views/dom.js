// DOM element helpers. Text only becomes text nodes: markup, style attributes and event handler
// attributes cannot be set, and the Content-Security-Policy forbids them.

/**
 * Return a new element.
 *
 * `props`: `class`; `on` {event: listener}; `data` {name: value}; `aria` {name: value}; anything
 * else is an attribute: left out for null, undefined and false, empty for true.
 * Children: elements, strings, null for nothing.
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === "on") {
      for (const [type, listener] of Object.entries(value))
        element.addEventListener(type, listener);
    } else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "aria") setAria(element, value);
    else setAttribute(element, name, value);
  }
  element.append(...children.filter(isNode));
  return element;
}

function isNode(child) {
  return child !== null && child !== undefined;
}

/** Split text into nodes; `code` in backticks becomes a code element. */
export function withCode(text) {
  return text.split("`").map((piece, at) => (at % 2 === 1 ? h("code", {}, piece) : piece));
}

/** Replace all children; null is nothing. */
export function fill(element, ...children) {
  element.replaceChildren(...children.filter(isNode));
}

function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : String(value));
}

export function setAria(element, values) {
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === undefined) element.removeAttribute(`aria-${name}`);
    else element.setAttribute(`aria-${name}`, String(value));
  }
}

/** Set the text if it differs: a rewritten node loses its selection. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Text for screen readers only. */
export function hidden(text) {
  return h("span", { class: "sr-only" }, text);
}

/** Set the children of `parent` to `nodes`, moving as few as possible. */
export function setChildren(parent, nodes) {
  const wanted = new Set(nodes);
  for (const child of [...parent.childNodes]) if (!wanted.has(child)) child.remove();
  let at = parent.firstChild;
  for (const node of nodes) {
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
}

const SVG = "http://www.w3.org/2000/svg";

// Drawn on a grid of 24 with round strokes.
const ICONS = {
  alert: "M12 8v5M12 16.5v.01M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z",
  back: "m15 5-7 7 7 7",
  bell: "M6.5 16.5V11a5.5 5.5 0 0 1 11 0v5.5l1.5 1.5H5zM10 20.5h4",
  "bell-off": "M4 4l16 16M8 7.2A5.5 5.5 0 0 0 6.5 11v5.5L5 18h12.5M10.2 5.8A5.5 5.5 0 0 1 17.5 11v3.5M10 20.5h4",
  bookmark: "M7 5.5A1.5 1.5 0 0 1 8.5 4h7A1.5 1.5 0 0 1 17 5.5V20l-5-3.8L7 20z",
  check: "m5 12.5 4.5 4.5L19 7.5",
  clock: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 8v4.2l2.6 1.6",
  close: "M6.5 6.5l11 11M17.5 6.5l-11 11",
  compose:
    "M11 4.5H7A2.5 2.5 0 0 0 4.5 7v10A2.5 2.5 0 0 0 7 19.5h10a2.5 2.5 0 0 0 2.5-2.5v-4M17.8 4.2a1.7 1.7 0 0 1 2.4 2.4L12.5 14.3l-3.2.8.8-3.2z",
  copy: "M9 9.5A1.5 1.5 0 0 1 10.5 8h8A1.5 1.5 0 0 1 20 9.5v8a1.5 1.5 0 0 1-1.5 1.5h-8A1.5 1.5 0 0 1 9 17.5zM6 15.5h-.5A1.5 1.5 0 0 1 4 14V6.5A1.5 1.5 0 0 1 5.5 5H13a1.5 1.5 0 0 1 1.5 1.5",
  down: "m6 9.5 6 6 6-6",
  double: "m2.5 12.8 4.2 4.2L16 7.5M11.8 16.6l.5.4L22 7.5",
  heart: "M12 19.5 5.3 12.9a4.3 4.3 0 0 1 6.1-6.1l.6.6.6-.6a4.3 4.3 0 0 1 6.1 6.1z",
  keyboard:
    "M4.5 6.5h15A1.5 1.5 0 0 1 21 8v8a1.5 1.5 0 0 1-1.5 1.5h-15A1.5 1.5 0 0 1 3 16V8a1.5 1.5 0 0 1 1.5-1.5zM7 10.5v.01M10.3 10.5v.01M13.7 10.5v.01M17 10.5v.01M8.5 14h7",
  leave: "M10 4.5H6.5a2 2 0 0 0-2 2v11a2 2 0 0 0 2 2H10M15.5 8l4 4-4 4M19 12h-9",
  monitor:
    "M5 5h14a1.5 1.5 0 0 1 1.5 1.5v8A1.5 1.5 0 0 1 19 16H5a1.5 1.5 0 0 1-1.5-1.5v-8A1.5 1.5 0 0 1 5 5zM9 19.5h6M12 16v3.5",
  moon: "M19.5 14.2A8 8 0 0 1 9.8 4.5a8 8 0 1 0 9.7 9.7z",
  more: "M5.5 12v.01M12 12v.01M18.5 12v.01",
  edit: "M4.5 19.5l.9-3.9L16.2 4.8a1.8 1.8 0 0 1 2.5 0l.5.5a1.8 1.8 0 0 1 0 2.5L8.4 18.6z",
  clip: "M18.5 11.5l-6.7 6.7a4.2 4.2 0 0 1-6-6L13 5a2.8 2.8 0 0 1 4 4l-7 7a1.4 1.4 0 0 1-2-2l6.3-6.3",
  file: "M7.5 3.5h6L18 8v11a1.5 1.5 0 0 1-1.5 1.5h-9A1.5 1.5 0 0 1 6 19V5a1.5 1.5 0 0 1 1.5-1.5zM13.5 3.5V8H18",
  hide: "M4 4l16 16M9.9 6.2A9 9 0 0 1 12 6c4.5 0 7.5 3.2 8.5 6a10 10 0 0 1-2.3 3.4M6.7 8.2A10 10 0 0 0 3.5 12c1 2.800 4 6 8.5 6a9 9 0 0 0 3.9-.9",
  trash: "M5 7h14M9.5 7V5.5A1.5 1.5 0 0 1 11 4h2a1.5 1.5 0 0 1 1.5 1.5V7M7 7l.7 11a1.5 1.5 0 0 0 1.5 1.5h5.600a1.5 1.5 0 0 0 1.5-1.5L17 7M10.5 11v4.5M13.5 11v4.5",
  pin: "M9 4.5h6M10 4.5l-.5 6-3 3v1.500h11V13.500l-3-3-.5-6M12 15v5.500",
  pulse: "M3.5 12h4l2.5-6.5 4 13 2.5-6.5h4",
  people:
    "M9 11.5a3.2 3.2 0 1 0 0-6.4 3.2 3.2 0 0 0 0 6.4zM3.5 19c.3-3 2.5-4.8 5.5-4.8s5.2 1.8 5.5 4.8M15.5 5.4a3 3 0 0 1 0 5.8M17 14.5c2 .5 3.3 2.1 3.5 4.5",
  reply: "m9.5 6-5 5 5 5M5 11h8.5a6 6 0 0 1 6 6v1",
  search: "M10.8 4.5a6.3 6.3 0 1 0 0 12.6 6.3 6.3 0 0 0 0-12.6zM15.5 15.5l4.2 4.2",
  send: "M12 19V5.5M6 11l6-6 6 6",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 3v1.5M12 19.5V21M3 12h1.5M19.5 12H21M5.6 5.6l1.1 1.1M17.3 17.3l1.1 1.1M5.6 18.4l1.1-1.1M17.3 6.7l1.1-1.1",
};

/** A decorative icon; its meaning needs a text label. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** An icon button with an accessible label. */
export function iconButton(name, label, onClick, props = {}) {
  const { class: extra = "", ...rest } = props;
  return h(
    "button",
    {
      type: "button",
      class: `icon-button ${extra}`.trim(),
      title: label,
      aria: { label },
      on: { click: onClick },
      ...rest,
    },
    icon(name),
  );
}
