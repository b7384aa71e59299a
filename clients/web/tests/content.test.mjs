// Message contents: Markdown, emoji, long texts and galleries.

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { findFirstLink, getPlainText, hasMention, parseMarkdown } =
  await load("content/markdown.ts");
const { findHiddenTarget } = await load("content/link_hosts.ts");
const shape = await load("content/text_shape.ts");
const { findBeginning, cleanText, countOnlyEmoji, getDirection, getLastLineDirection } = shape;
const { computeLayout, SHOWN_MAX } = await load("content/gallery_layout.ts");
const { cleanName, isVoice, getFileKind, getVoiceLengthS, buildVoiceName, listFileNames } =
  await load("content/file_kinds.ts");

const text = (value) => ({ type: "text", text: value });
const paragraph = (...children) => ({ type: "paragraph", children });
const inlines = (source) => {
  const [block, ...others] = parseMarkdown(source);
  assert.equal(others.length, 0);
  return block.children;
};

test("spans nest, and markers inside words are text", () => {
  assert.deepEqual(inlines("**bold *both*** ~~gone~~ `a*b*`"), [
    { type: "strong", children: [text("bold "), { type: "emphasis", children: [text("both")] }] },
    text(" "),
    { type: "strike", children: [text("gone")] },
    text(" "),
    { type: "code", text: "a*b*" },
  ]);
  assert.deepEqual(inlines("snake_case_name 2*3*4"), [
    text("snake_case_name 2"),
    { type: "emphasis", children: [text("3")] },
    text("4"),
  ]);
});

test("a newline becomes a line break", () => {
  assert.deepEqual(inlines("one\ntwo"), [text("one"), { type: "break" }, text("two")]);
});

test("leading spaces of a line are kept, except in quotes and lists", () => {
  const [first, second] = parseMarkdown("  two\n\ttab  wide\r\n\n    four");
  assert.deepEqual(
    [first.children, second.children],
    [[text("  two"), { type: "break" }, text("\ttab  wide")], [text("    four")]],
  );
  assert.equal(getPlainText("> said\n\n-   item"), "said item");
  const quote = { type: "quote", children: [paragraph(text("said"))] };
  assert.deepEqual(parseMarkdown(">   said"), [quote]);
});

test("a text is sent without control characters, lone surrogates and outer blank lines", () => {
  assert.equal(cleanText("\r\n \n  a\u0000b\u001bc\r\nd \n\n"), "  abc\nd");
  assert.equal(cleanText(" \n\t "), "");
  assert.equal(cleanText("\u200b\u3164 \u2800\ufeff"), "");
  assert.equal(cleanText("\u200bkk "), "\u200bkk");
  assert.equal(cleanText("a\ud800b \u{1f600}"), "a\ufffdb \u{1f600}");
});

test("a text is cut between graphemes", () => {
  for (const grapheme of ["\u{1f600}", "e\u0301", "👩🏻‍❤️‍💋‍👨🏿", "🇩🇪", "👍🏽"]) {
    for (let before = 0; before < 1_200; before += 399) {
      const start = "x".repeat(before);
      for (let charsMax = before + 1; charsMax < before + grapheme.length; charsMax += 1) {
        assert.equal(getPlainText(start + grapheme, charsMax), start);
      }
    }
    const start = "x".repeat(1_199);
    assert.equal(findBeginning(start + grapheme + "y".repeat(600)), start);
  }
});

test("blocks: code with its language, quotes and lists", () => {
  assert.deepEqual(parseMarkdown("```js title\nlet a = '<b>';\n```\n> said\n\n3. three\n4. four"), [
    { type: "code", language: "js", text: "let a = '<b>';" },
    { type: "quote", children: [paragraph(text("said"))] },
    {
      type: "list",
      start: 3,
      items: [[paragraph(text("three"))], [paragraph(text("four"))]],
    },
  ]);
});

test("an unclosed code fence extends to the end", () => {
  assert.deepEqual(parseMarkdown("```\na\nb"), [{ type: "code", language: "", text: "a\nb" }]);
});

test("HTML, images, headings and tables are plain text", () => {
  for (const source of [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "# heading",
    "a | b\n--|--",
    "---",
    "&lt;",
  ]) {
    assert.equal(getPlainText(source), source.replace("\n", " "));
    const types = new Set(parseMarkdown(source).map(({ type }) => type));
    assert.deepEqual([...types], ["paragraph"]);
  }
  assert.deepEqual(inlines("![alt](https://a.example/i.png)"), [
    text("!"),
    { type: "link", href: "https://a.example/i.png", children: [text("alt")] },
  ]);
});

test("only web and mail addresses become links", () => {
  for (const href of ["javascript:alert(1)", "data:text/html,x", "vbscript:x", "file:///etc"]) {
    for (const source of [`[a](${href})`, `<${href}>`, href]) {
      assert.equal(JSON.stringify(parseMarkdown(source)).includes('"link"'), false, source);
    }
  }
  assert.deepEqual(inlines("see https://a.example/x?y=1, ok"), [
    text("see "),
    { type: "link", href: "https://a.example/x?y=1", children: [text("https://a.example/x?y=1")] },
    text(", ok"),
  ]);
  assert.equal(inlines("ann@a.example")[0].href, "mailto:ann@a.example");
  assert.deepEqual(inlines("notes.md"), [text("notes.md")]);
});

test("mentions are not found in addresses, code or words", () => {
  assert.deepEqual(inlines("hi @ann-b, @ben."), [
    text("hi "),
    { type: "mention", user: "ann-b" },
    text(", "),
    { type: "mention", user: "ben" },
    text("."),
  ]);
  for (const source of ["a@ann", "`@ann`", "```\n@ann\n```", "x@ann.example", "@anna"]) {
    assert.equal(hasMention(source, "ann"), false, source);
  }
  for (const source of ["@ann", "**@ann**", "> @ann", "- @ann"]) {
    assert.equal(hasMention(source, "ann"), true, source);
  }
});

test("deep nesting and hostile input are parsed in bounded time", () => {
  const started = performance.now();
  for (const part of ["> ", "[", "*", "**a", "`", "- ", "@a", "~~", "\\", "![", "<", "_a_"]) {
    parseMarkdown(part.repeat(Math.ceil(4000 / part.length)).slice(0, 4000));
  }
  assert.ok(performance.now() - started < 20_000); // exponential time would take hours
});

test("the summary and the first link of a message", () => {
  assert.equal(getPlainText("**Hi** @ann\n> see\n```\ncode\n```"), "Hi @ann see code");
  const link = findFirstLink("`https://no.example` and https://yes.example/a");
  assert.equal(link, "https://yes.example/a");
  assert.equal(findFirstLink("mailto:a@b.example"), null);
});

test("only emoji: up to six, with skin tones, flags, families and keycaps", () => {
  for (const [value, count] of [
    ["👍", 1],
    ["👍🏽 🇩🇪", 2],
    ["👩‍👩‍👧‍👦❤️5️⃣", 3],
    ["12", 0],
    ["👍 ok", 0],
    ["", 0],
    ["😀".repeat(7), 0],
  ]) {
    assert.equal(countOnlyEmoji(value), count, value);
  }
});

test("long texts are cut at a word, short ones are not cut", () => {
  assert.equal(findBeginning("short"), null);
  const beginning = findBeginning("word ".repeat(800));
  assert.ok(beginning.length <= 1_200 && beginning.endsWith("word"));
  assert.equal(findBeginning("line\n".repeat(100)).split("\n").length, 24);
  assert.ok(findBeginning("😀".repeat(2_000)).isWellFormed());
});

test("galleries fill their width without overlap", () => {
  for (let count = 1; count <= 10; count += 1) {
    const sizes = Array.from({ length: count }, (_, index) => ({
      width: 100 + 170 * index,
      height: index % 3 === 0 ? null : 900 - 80 * index,
    }));
    const { positions, height } = computeLayout(sizes);
    assert.equal(positions.length, Math.min(count, SHOWN_MAX));
    for (const y of new Set(positions.map((position) => position.y))) {
      const row = positions.filter((position) => position.y === y);
      assert.ok(Math.abs(row.reduce((sum, { width }) => sum + width, 0) - 1) < 1e-9);
      for (const position of row) assert.ok(position.y + position.height <= height + 1e-9);
    }
  }
});

test("kinds and names of files", () => {
  assert.equal(getFileKind({ type: "image/svg+xml", size: 10 }), "file");
  assert.equal(getFileKind({ type: "image/PNG; x=1", size: 10 }), "image");
  assert.equal(getFileKind({ type: "video/mp4", size: 1e9 }), "file");
  assert.equal(getFileKind({ type: "audio/webm", size: 10 }), "audio");
  const voice = { name: buildVoiceName("audio/webm;codecs=opus", 1_700_000_000_000, 64.6) };
  assert.ok(isVoice(voice));
  assert.equal(getVoiceLengthS(voice), 65);
  assert.equal(getVoiceLengthS({ name: "voice-1700000000000.webm" }), 0);
  assert.equal(listFileNames({ attachments: [voice, { name: "a.txt" }] }, "Voice"), "Voice, a.txt");
  assert.equal(cleanName("a/b:c\u202e?.png"), "a_b_c_.png");
  assert.equal(cleanName("..."), "file");
  assert.ok(cleanName(`${"x".repeat(300)}.jpeg`).endsWith(".jpeg"));
});

test("the first letter sets the direction, and the last paragraph the end direction", () => {
  assert.equal(getDirection("**שלום** world"), "rtl");
  assert.equal(getDirection("1. hello שלום"), "ltr");
  assert.equal(getDirection("12:30"), "ltr");
  assert.equal(getLastLineDirection("hello\n\nمرحبا"), "rtl");
  assert.equal(getLastLineDirection(`שלום ${"word ".repeat(400)}\n\nend`), "rtl");
});

test("a link whose text shows another address names its target", () => {
  const target = "https://evil.example/login";
  const hidden = [
    "https://bank.example",
    "bank.example",
    "Log in at www.bank.example/login now",
    "https://bank\u200b.example",
    "bank。example",
    "evil.example and bank.example",
    "https://evil.example.bank.example",
    "mail@bank.example",
  ];
  for (const text of hidden) assert.equal(findHiddenTarget(target, text), "evil.example", text);
  assert.equal(findHiddenTarget("https://bank.example@evil.example/", "here"), "evil.example");
  assert.equal(findHiddenTarget("https://evil.example:8443/", "bank.example"), "evil.example:8443");
  assert.equal(findHiddenTarget("mailto:eve@evil.example", "ann@bank.example"), "eve@evil.example");
});

test("other links are shown as they are", () => {
  const shown = [
    ["https://site.example/", "Our page"],
    ["https://site.example/notes.md", "https://site.example/notes.md"],
    ["https://www.site.example/a", "site.example/a"],
    ["https://site.example/?next=other.example", "https://site.example/?next=other.example"],
    ["https://site.example/", "SITE.EXAMPLE"],
    ["https://xn--bcher-kva.example/", "bücher.example"],
    ["https://site.example/", "Version 2.0 of 3.5"],
    ["mailto:ann@site.example", "ann@site.example"],
    ["mailto:ann@site.example", "Write to Ann"],
  ];
  for (const [href, text] of shown) assert.equal(findHiddenTarget(href, text), null, text);
});
