// Text for people: links that are safe, lengths as the server counts, names and days.

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  cleanBody,
  dayLabel,
  fileSize,
  hueOf,
  initials,
  isId,
  isOnlyEmoji,
  linkPieces,
  nameList,
  oneLine,
  textLength,
} from "../../../chatserver/web/format.js";
import { classifyClose, reconnectDelay } from "../../../chatserver/web/backoff.js";

const hrefs = (text) =>
  linkPieces(text)
    .map((piece) => piece.href)
    .filter(Boolean);
const joined = (text) =>
  linkPieces(text)
    .map((piece) => piece.text)
    .join("");

test("only http and https become links", () => {
  assert.deepEqual(hrefs("http://a.example https://b.example/x?y=1#z"), [
    "http://a.example/",
    "https://b.example/x?y=1#z",
  ]);
  for (const text of [
    "javascript:alert(1)",
    "data:text/html,<script>",
    "vbscript:x",
    "file:///etc/passwd",
    "xhttps://a.example",
    "https://",
    "http:// a",
  ]) {
    assert.deepEqual(hrefs(text), [], text);
  }
});

test("what is shown of a link is what was written", () => {
  for (const text of [
    "see https://en.example/wiki/A_(b). And (https://c.example/d), or https://e.example/f)!",
    "<a href=https://a.example onclick=x>https://b.example</a>",
    "https://a.example/\u202etxt.exe",
    "https://" + "a".repeat(3900),
    "http://a" + ")".repeat(3900),
  ]) {
    assert.equal(joined(text), text);
  }
});

test("a sentence's punctuation is not part of a link, a balanced bracket is", () => {
  const [, link] = linkPieces("see https://en.example/wiki/A_(b).");

  assert.equal(link.text, "https://en.example/wiki/A_(b)");
});

test("length is counted in code points", () => {
  assert.equal(textLength("a\u{1f600}b"), 3);
  assert.equal(textLength("\u{1f600}".repeat(4000)), 4000);
});

test("a body is sent without control characters and blank ends", () => {
  assert.equal(cleanBody("\r\n \n  a\u0000b\u001bc\r\nd \n\n"), "  abc\nd");
  assert.equal(cleanBody(" \n\t "), "");
  assert.equal(cleanBody("a\ud800b"), "a\ufffdb");
  assert.equal(cleanBody("e\u0301"), "\u00e9");
});

test("a preview is one line and bounded", () => {
  assert.equal(oneLine("a\n\n  b\tc"), "a b c");
  assert.equal(oneLine("x".repeat(500)).length, 161);
});

test("initials are one or two letters of any script", () => {
  const cases = {
    alice: "A",
    "Mary Ann-Smith": "MS",
    __proto__: "P",
    ärger_ölig: "ÄÖ",
    "_-_": "?",
  };
  for (const name of Object.getOwnPropertyNames(cases)) assert.equal(initials(name), cases[name]);
});

test("a name keeps its colour, and names differ", () => {
  const names = Array.from({ length: 200 }, (_, i) => `user${i}`);

  assert.equal(hueOf("alice"), hueOf("alice"));
  assert.equal(new Set(names.map(hueOf)).size, 12);
});

test("a few emoji alone are large, anything else is text", () => {
  for (const text of ["👍", "👍🏽 🎉", "👨‍👩‍👧‍👦", "🇩🇪"]) assert.equal(isOnlyEmoji(text), true, text);
  for (const text of ["", " ", "1", "👍 ok", "🎉🎉🎉🎉", "#", "©a"])
    assert.equal(isOnlyEmoji(text), false, text);
});

test("ids are the server's grammar, to the end", () => {
  for (const id of ["a", "A_b-9", "x".repeat(64)]) assert.equal(isId(id), true, id);
  for (const id of ["", "a b", "a\n", "a#", "x".repeat(65), "é"]) assert.equal(isId(id), false, id);
});

test("days have names near today and dates far from it", () => {
  const now = new Date(2026, 10, 21, 9, 0).getTime();
  const day = (...parts) => dayLabel(new Date(...parts).getTime(), now);

  assert.equal(day(2026, 10, 21, 0, 1), "Today");
  assert.equal(day(2026, 10, 20, 23, 59), "Yesterday");
  assert.equal(day(2026, 10, 16, 12), "Monday");
  assert.match(day(2026, 2, 1), /March/);
  assert.match(day(2025, 2, 1), /2025/);
});

test("long lists of names are cut", () => {
  assert.equal(nameList(["a", "b", "c"]), "a, b and c");
  assert.equal(nameList(["a", "b", "c", "d", "e", "f"], 3), "a, b and 4 others");
});

test("delays grow from half a second to ten, and never undercut the server", () => {
  for (let attempt = 0; attempt < 20; attempt += 1) {
    for (const random of [0, 0.5, 0.999]) {
      const delay = reconnectDelay(attempt, () => random);
      assert.ok(delay >= 500 && delay <= 10_000, `${attempt} ${random}: ${delay}`);
      assert.ok(reconnectDelay(attempt, () => random, 7000) >= 7000);
    }
  }
  assert.ok(reconnectDelay(9, () => 0.999) > 9000);
});

test("close codes from 3500 do not come back by themselves", () => {
  for (const code of [1000, 1006, 1012, 3000, 3499])
    assert.equal(classifyClose(code).retry, true, code);
  for (const code of [3500, 3501, 3999]) assert.equal(classifyClose(code).retry, false, code);
});

test("sizes of files are for people", () => {
  assert.deepEqual(
    [1, 999, 1000, 9_950, 123_456, 26_214_400, 3_000_000_000].map(fileSize),
    ["1 B", "999 B", "1.0 kB", "9.9 kB", "123 kB", "26 MB", "3.0 GB"],
  );
});
