// Colors of people: names and avatars are readable in light and dark mode.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { load } from "./load.mjs";

const SOURCE = join(import.meta.dirname, "..", "src");
const CONTRAST_MIN = 4.5;
const SCHEMES = ["light", "dark"];
const TOKENS = read("design/tokens.css");
const { getHue } = await load("design/index.ts");

function read(path) {
  return readFileSync(join(SOURCE, path), "utf8");
}

/** Return the value of a property in the first rule of a class, or of `:root`. */
function readValue(style, selector, property) {
  const start = style.indexOf(`${selector} {`);
  assert.ok(start >= 0, selector);
  const rule = style.slice(start, style.indexOf("\n}", start));
  const value = new RegExp(`[;{\\s]${property}:\\s*([^;]+);`).exec(rule)?.[1];
  assert.ok(value !== undefined, `${selector} ${property}`);
  return value;
}

/** Return the hues of a class by number, in degrees. */
function readHues(style, selector) {
  const pattern = new RegExp(
    `\\${selector}\\[data-hue="(\\d+)"\\] \\{\\s*--hue: (\\d+);\\s*\\}`,
    "g",
  );
  return new Map([...style.matchAll(pattern)].map(([, hue, degrees]) => [+hue, +degrees]));
}

/** Return red, green and blue, from 0 to 1, of a `light-dark()` value in a color scheme. */
function parseColor(value, scheme, degrees = 0) {
  const pair = /^light-dark\((.+?\)?), (.+)\)$/.exec(value.replace(/var\(--hue\)/g, degrees));
  const color = pair?.[SCHEMES.indexOf(scheme) + 1] ?? "";
  const hex = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})$/.exec(color);
  if (hex !== null) return hex.slice(1).map((part) => parseInt(part, 16) / 255);
  const hsl = /^hsl\((\d+) (\d+)% (\d+)%\)$/.exec(color);
  assert.ok(hsl !== null, `${value}: ${color}`);
  return rgbOf(Number(hsl[1]), Number(hsl[2]) / 100, Number(hsl[3]) / 100);
}

/** Convert HSL (CSS Color 4, section 7.1). */
function rgbOf(hue, saturation, lightness) {
  const amount = saturation * Math.min(lightness, 1 - lightness);
  return [0, 8, 4].map((offset) => {
    const at = (offset + hue / 30) % 12;
    return lightness - amount * Math.max(-1, Math.min(at - 3, 9 - at, 1));
  });
}

/** Return the contrast of two colors (WCAG 2, relative luminance). */
function computeContrast(one, other) {
  const [lighter, darker] = [one, other]
    .map((color) => {
      const [red, green, blue] = color.map((part) =>
        part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4,
      );
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    })
    .sort((a, b) => b - a);
  return (lighter + 0.05) / (darker + 0.05);
}

/** Return the combinations of text and background with too little contrast. */
function findLowContrast(hues, text, background) {
  const pairs = SCHEMES.flatMap((scheme) => [...hues.values()].map((hue) => [scheme, hue]));
  return pairs
    .map(([scheme, hue]) => {
      const colors = [text, background].map((value) => parseColor(value, scheme, hue));
      return { scheme, hue, contrast: computeContrast(...colors) };
    })
    .filter(({ contrast }) => contrast < CONTRAST_MIN);
}

test("sender names are readable in each hue on each message background", () => {
  const style = read("conversation/messages/MessageRow.module.css");
  const hues = readHues(style, ".sender");
  const text = readValue(style, ".sender", "color");

  assert.equal(hues.size, 12);
  // A bubble, the page behind an emoji without a bubble, and a highlighted row.
  for (const name of ["--bubble", "--bg", "--accent-soft"]) {
    assert.deepEqual(findLowContrast(hues, text, readValue(TOKENS, ":root", name)), [], name);
  }
});

test("avatar initials are readable in each hue", () => {
  const style = read("design/Avatar.module.css");
  const hues = readHues(style, ".avatar");
  const text = readValue(style, ".avatar", "color");
  const background = readValue(style, ".avatar", "background");

  assert.equal(hues.size, 12);
  assert.deepEqual(findLowContrast(hues, text, background), []);
});

test("every id has one of the hues", () => {
  const hues = readHues(read("design/Avatar.module.css"), ".avatar");
  const usedHues = new Set(Array.from({ length: 2_000 }, (_, number) => getHue(`user-${number}`)));
  for (const id of ["", "日本", "\ud800", "x".repeat(10_000)]) usedHues.add(getHue(id));

  assert.deepEqual(
    [...usedHues].sort((a, b) => a - b),
    [...hues.keys()],
  );
});

test("the demo users have different hues", () => {
  const users = ["alice", "bob", "carol", "dmitri", "emma"];

  assert.equal(new Set(users.map(getHue)).size, users.length);
});

test("the contrast is computed as in WCAG, and low contrast is found", () => {
  const gray = [0x76, 0x76, 0x76].map((part) => part / 255);
  const faint = "light-dark(hsl(var(--hue) 70% 60%), hsl(var(--hue) 70% 76%))";

  assert.equal(computeContrast([0, 0, 0], [1, 1, 1]), 21);
  assert.equal(computeContrast(gray, [1, 1, 1]).toFixed(2), "4.54");
  assert.deepEqual(
    parseColor("light-dark(hsl(140 100% 25%), #000000)", "light").map((part) => part.toFixed(3)),
    ["0.000", "0.500", "0.167"],
  );
  const white = "light-dark(#ffffff, #1f222a)";
  const [{ scheme, hue }] = findLowContrast(new Map([[0, 42]]), faint, white);
  assert.deepEqual([scheme, hue], ["light", 42]);
});
