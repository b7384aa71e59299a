// Error texts: the server's own texts are English and never shown.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { load } from "./load.mjs";

const { ChatError, DETAILS, de, en, getErrorText, zh } = await load("../tests/errors.ts");
const SERVER = new URL("../../../chatserver/", import.meta.url);
const CODES = ["bad_request", "conflict", "forbidden", "internal", "not_found", "new_code"];
const DETAIL = "options.temperature: gobbledygook of the server";

test("no part of the server's text is shown in any language", () => {
  console.info = console.error = () => {};
  for (const { common } of [en, de, zh]) {
    for (const code of CODES) {
      const text = getErrorText(new ChatError(code, DETAIL), {}, common);
      assert.doesNotMatch(text, /gobbledygook|of the server/, code);
      assert.notEqual(text, "");
    }
    assert.doesNotMatch(getErrorText(new TypeError("gobbledygook"), {}, common), /gobbledygook/);
  }
});

test("known causes have a text in the user's language", () => {
  const getText = (detail, code = "bad_request") => {
    return getErrorText(new ChatError(code, detail), {}, de.common);
  };

  assert.equal(
    getText("password: must be at least 10 characters"),
    "Das Passwort muss mindestens 10 Zeichen haben.",
  );
  assert.match(getText("password: too common; choose another one"), /zu verbreitet/);
  const full = "user: at most 2,000 groups, the maximum (chats.per_user_max); ann must leave one";
  assert.match(getText(full), /2000 Gruppen/);
  assert.match(getText("topic: must be at most 250 characters"), /„Thema“/);
  assert.match(getText("user: this name is already taken", "conflict"), /schon vergeben/);
});

test("the server still has all texts that the client knows", () => {
  const files = readdirSync(SERVER, { recursive: true }).filter((name) => name.endsWith(".py"));
  const sources = files.map((name) => readFileSync(new URL(name, SERVER), "utf8"));
  for (const [part] of DETAILS) {
    assert.ok(
      sources.some((source) => source.replace(/"\s+f?"/g, "").includes(part)),
      `no module of the server has: ${part}`,
    );
  }
});
