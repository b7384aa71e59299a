// SVG line chart of the last minutes: axes with units, a cursor moved by mouse or arrow keys, a
// legend with the values at the cursor, and the same data as a table.

import { axisOf, lineOf, minutesOf, nearest, rowsOf } from "../state/metrics.js";
import { fill, h, setAria, setText } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 148;
const LEFT = 50;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 20;
const TIME = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });

function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** `lines`: `[{key, label}]`, at most three; `format(value)` returns a value with its unit. */
export function createChart({ title, about, lines, format, least = 1, base = 10 }) {
  const values = lines.map(({ label }, number) => {
    const value = h("strong", { class: "chart-value" });
    const mark = h("span", { class: `chart-mark chart-line-${number + 1}` });
    return { value, element: h("span", { class: "chart-key" }, mark, label, " ", value) };
  });
  const when = h("span", { class: "chart-when" });
  const plot = svg("svg", { class: "chart-plot", "aria-hidden": "true", height: HEIGHT });
  const stage = h(
    "div",
    {
      class: "chart-stage",
      tabindex: 0,
      role: "slider",
      aria: { label: title, valuemin: 0, valuemax: 0, valuenow: 0 },
      on: { pointermove: onPointer, pointerleave: hideCursor, pointerdown: onPointer, keydown: onKey, blur: hideCursor },
    },
    plot,
  );
  const table = h("div", { class: "chart-table", tabindex: 0, role: "region", aria: { label: `${title}: data table` } });
  const data = h(
    "details",
    { class: "chart-data", on: { toggle: drawTable } },
    h("summary", {}, "View as table"),
    table,
  );
  const element = h(
    "figure",
    { class: "chart card" },
    h(
      "figcaption",
      {},
      h("h4", { class: "chart-title" }, title),
      h("p", { class: "chart-about" }, about),
    ),
    h("p", { class: "chart-keys" }, ...values.map((each) => each.element), when),
    stage,
    data,
  );
  let points = [];
  let everyMs = 2000;
  let nowMs = 0;
  let chosen = -1; // the point under the cursor
  let width = 0;
  let spanMs = 600_000;

  const observer = new ResizeObserver(([entry]) => {
    width = Math.round(entry.contentRect.width);
    draw();
  });
  observer.observe(stage);

  const timeX = (at) => LEFT + (1 - (nowMs - at) / spanMs) * (width - LEFT - RIGHT);

  function update(metrics) {
    const at = points[chosen]?.at_ms;
    ({ points } = metrics);
    everyMs = metrics.latest?.every_ms ?? everyMs;
    nowMs = points.at(-1)?.at_ms ?? 0;
    spanMs = minutesOf(points) * 60_000;
    chosen = at === undefined ? -1 : nearest(points, at);
    draw();
    if (data.open) drawTable();
  }

  function draw() {
    drawValues();
    if (width === 0) return;
    const most = Math.max(0, ...points.flatMap((point) => lines.map(({ key }) => point[key] ?? 0)));
    const { top, ticks } = axisOf(most, least, base);
    const valueY = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
    plot.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    plot.setAttribute("width", width);
    const drawn = paths(valueY);
    const empty = { class: "chart-tick", x: (LEFT + width) / 2, y: HEIGHT / 2, "text-anchor": "middle" };
    if (drawn.length === 0) drawn.push(svg("text", empty, "No data yet"));
    plot.replaceChildren(...axes(ticks, valueY), ...drawn, ...cursor(valueY));
  }

  function axes(ticks, valueY) {
    const drawn = ticks.flatMap((tick) => [
      svg("line", { class: "chart-grid", x1: LEFT, x2: width - RIGHT, y1: valueY(tick), y2: valueY(tick) }),
      svg("text", { class: "chart-tick", x: LEFT - 6, y: valueY(tick) + 4, "text-anchor": "end" }, format(tick)),
    ]);
    const whole = spanMs / 60_000;
    const times = [
      [whole, "start", `${whole} min ago`],
      [whole / 2, "middle", `${whole / 2} min`],
      [0, "end", "now"],
    ];
    for (const [minutes, anchor, label] of times) {
      const x = timeX(nowMs - minutes * 60_000);
      drawn.push(svg("text", { class: "chart-tick", x, y: HEIGHT - 5, "text-anchor": anchor }, label));
    }
    return drawn;
  }

  function paths(valueY) {
    return lines.flatMap(({ key }, number) => {
      let path = "";
      let dots = "";
      let isDown = false;
      const line = lineOf(points, key, everyMs);
      for (const [at, each] of line.entries()) {
        if (each.value !== null) {
          const x = timeX(each.at).toFixed(1);
          const y = valueY(each.value).toFixed(1);
          // A single value between two gaps is drawn as a dot.
          if (!isDown && (line[at + 1]?.value ?? null) === null) dots += `M${x} ${y}h0.1`;
          else path += `${isDown ? "L" : "M"}${x} ${y}`;
        }
        isDown = each.value !== null;
      }
      return [["chart-line", path], ["chart-single", dots]]
        .filter(([, d]) => d !== "")
        .map(([kind, d]) => svg("path", { class: `${kind} chart-line-${number + 1}`, d }));
    });
  }

  function cursor(valueY) {
    const point = points[chosen];
    if (point === undefined) return [];
    const x = timeX(point.at_ms);
    const dots = lines.flatMap(({ key }, number) =>
      (point[key] ?? null) === null
        ? []
        : [svg("circle", { class: `chart-dot chart-line-${number + 1}`, cx: x, cy: valueY(point[key]), r: 3.5 })],
    );
    return [svg("line", { class: "chart-cursor", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }), ...dots];
  }

  function drawValues() {
    const number = chosen < 0 ? points.length - 1 : chosen;
    const point = points[number];
    for (const [at, { key }] of lines.entries()) setText(values[at].value, format(point?.[key]));
    setText(when, chosen < 0 || point === undefined ? "" : TIME.format(point.at_ms));
    const texts = lines.map(({ key, label }) => `${label} ${format(point?.[key])}`).join(", ");
    setAria(stage, {
      valuemax: Math.max(0, points.length - 1),
      valuenow: Math.max(0, number),
      valuetext: point === undefined ? "no data yet" : `${TIME.format(point.at_ms)}: ${texts}`,
    });
  }

  function choose(number) {
    chosen = points.length === 0 ? -1 : Math.min(points.length - 1, Math.max(0, number));
    draw();
  }

  function hideCursor() {
    if (chosen < 0) return;
    chosen = -1;
    draw();
  }

  function onPointer(event) {
    const x = event.clientX - stage.getBoundingClientRect().left;
    const at = nowMs - (1 - (x - LEFT) / Math.max(1, width - LEFT - RIGHT)) * spanMs;
    choose(nearest(points, at));
  }

  function onKey(event) {
    const from = chosen < 0 ? points.length - 1 : chosen;
    const to = {
      ArrowLeft: from - 1,
      ArrowDown: from - 1,
      ArrowRight: from + 1,
      ArrowUp: from + 1,
      PageDown: from - 15,
      PageUp: from + 15,
      Home: 0,
      End: points.length - 1,
    }[event.key];
    if (to !== undefined) choose(to);
    else if (event.key === "Escape" && chosen >= 0) hideCursor();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  function drawTable() {
    if (!data.open) return;
    fill(
      table,
      createTable(
        ["Time", ...lines.map(({ label }) => label)],
        rowsOf(points).map((point) => [
          TIME.format(point.at_ms),
          ...lines.map(({ key }) => format(point[key])),
        ]),
        title,
      ),
    );
  }

  return { element, update, stop: () => observer.disconnect() };
}

/** A table of texts and elements; the first cell of each row is its header. */
export function createTable(heads, rows, caption) {
  return h(
    "table",
    { class: "metrics-table" },
    h("caption", { class: "sr-only" }, caption),
    h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
    h(
      "tbody",
      {},
      ...rows.map(([first, ...rest]) =>
        h("tr", {}, h("th", { scope: "row" }, first), ...rest.map((cell) => h("td", {}, cell))),
      ),
    ),
  );
}

/** A decorative bar that fills `share` (0 to 1) of its width. */
export function createBar(share) {
  const width = `${(Math.min(1, Math.max(0, share)) * 100).toFixed(1)}%`;
  return svg(
    "svg",
    { class: "bar", "aria-hidden": "true" },
    svg("rect", { class: "bar-ground", width: "100%", height: "100%", rx: 3 }),
    svg("rect", { class: "bar-part", width, height: "100%", rx: 3 }),
  );
}
