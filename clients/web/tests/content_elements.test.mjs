// The text of a message as rendered HTML.

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { renderText } = await load("../tests/render.tsx");

const tagsOf = (html) => [...new Set([...html.matchAll(/<(\w+)/g)].map(([, name]) => name))].sort();

test("formatting becomes elements", () => {
  const html = renderText("**a** _b_ ~~c~~ `d`\n> e\n\n1. f\n\n```js\ng\n```");
  const wanted = ["blockquote", "button", "code", "em", "li", "ol", "pre", "s", "strong"];
  assert.deepEqual(
    wanted.filter((name) => !tagsOf(html).includes(name)),
    [],
  );
});

test("HTML in a message stays text", () => {
  const html = renderText('<img src=x onerror="alert(1)"> <b>x</b> ![i](https://a.example/i.png)');
  assert.deepEqual(tagsOf(html), ["a", "div", "p"]);
  assert.ok(html.includes("&lt;img src=x"));
});

test("links open a new tab without a referrer or opener", () => {
  const html = renderText("https://a.example/x and [here](https://b.example)");
  const links = [...html.matchAll(/<a [^>]*>/g)].map(([link]) => link);
  assert.equal(links.length, 2);
  for (const link of links) {
    assert.match(link, /target="_blank"/);
    assert.match(link, /rel="noopener noreferrer nofollow"/);
  }
  assert.equal(renderText("[x](javascript:alert(1))").includes("<a"), false);
});

test("a mention links to the profile", () => {
  assert.match(renderText("hi @ann"), /<a[^>]*href="[^"]*\/people\/ann"[^>]*>@ann<\/a>/);
});

test("long texts are shortened, with a button", () => {
  const html = renderText("word ".repeat(700));
  assert.ok(html.length < 2_500);
  assert.match(html, /<button[^>]*aria-expanded="false"/);
  assert.equal(renderText("short").includes("<button"), false);
});
