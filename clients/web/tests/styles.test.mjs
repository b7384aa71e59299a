// Rules for all styles: the layout must also work from right to left.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

const SOURCE = join(import.meta.dirname, "..", "src");
const PHYSICAL = [
  /(?:^|[;{\s])(?:left|right|top|bottom|width|height)\s*:/,
  /(?<!@media \(|@media \[)(?:min|max)-(?:width|height)\s*:/,
  /(?<!safe-area-)(?:margin|padding|border|inset)-(?:left|right|top|bottom)/,
  /border-(?:top|bottom)-(?:left|right)-radius/,
  /(?:text-align|float|clear)\s*:\s*(?:left|right)/,
  // Four values: left and right differ.
  /(?:^|[;{\s])(?:margin|padding|inset)\s*:\s*(\S+)\s+(\S+)\s+(\S+)\s+(?!\2\s*;)[^\s;]+\s*;/,
];

function listPhysical(style) {
  const lines = style.replace(/\/\*[\s\S]*?\*\//g, "").split("\n");
  return lines.filter((line) => PHYSICAL.some((pattern) => pattern.test(replaceCalls(line))));
}

/** Return a line in which each function such as `calc(…)` is one word. */
function replaceCalls(line) {
  const next = line.replace(/\(([^()]*)\)/g, (_, inside) => `[${inside.replace(/\s/g, "")}]`);
  return next === line ? line : replaceCalls(next);
}

test("styles use no physical properties such as margin-left", () => {
  const styles = readdirSync(SOURCE, { recursive: true }).filter((path) => path.endsWith(".css"));
  const lines = styles.flatMap((path) =>
    listPhysical(readFileSync(join(SOURCE, path), "utf8")).map((line) => `${path}: ${line.trim()}`),
  );

  assert.ok(styles.length > 40);
  assert.deepEqual(lines, []);
});

// Menus and dialogs contain these elements, and can be inside of any component.
const LEAK = /(?<![>+~])\s+(?:button|h2|form|header|footer)\b/;

function listLeaks(style) {
  const rules = style.replace(/\/\*[\s\S]*?\*\//g, "").matchAll(/([^{};]+)\{/g);
  const selectors = [...rules].flatMap(([, selector]) => selector.trim().split(/,\s*(?![^(]*\))/));
  return selectors.filter(
    (each) => !each.startsWith("@") && LEAK.test(each.replace(/\([^)]*\)/g, "")),
  );
}

test("styles of buttons, headings and forms do not leak into menus and dialogs", () => {
  const styles = readdirSync(SOURCE, { recursive: true }).filter((path) => path.endsWith(".css"));
  const leaks = styles.flatMap((path) =>
    listLeaks(readFileSync(join(SOURCE, path), "utf8")).map((leak) => `${path}: ${leak}`),
  );

  assert.deepEqual(leaks, []);
  assert.deepEqual(listLeaks(".a > button, .b button:hover {\n}\n.c h2 {"), [
    ".b button:hover",
    ".c h2",
  ]);
});

test("the rule finds physical properties and allows logical ones", () => {
  const physical = [
    "left: 0;",
    "max-height: 4rem;",
    "margin-left: 1px;",
    "border-top-left-radius: 0;",
    "text-align: right;",
    "padding: 0 1px 0 2px;",
  ];
  const logical = [
    "inset-inline-start: 0;",
    "border-start-start-radius: 0;",
    "text-align: end;",
    "padding: 0 var(--a) 1px var(--a);",
    "@media (max-width: 719px) {",
    "transition: background-color 1s;",
  ];

  assert.deepEqual(listPhysical(physical.join("\n")), physical);
  assert.deepEqual(listPhysical(logical.join("\n")), []);
});
