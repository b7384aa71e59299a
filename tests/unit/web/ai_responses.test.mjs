// Answers of companions as they arrive: pieces in any order, a device that joins in the middle, and
// the message that an answer becomes.

import assert from "node:assert/strict";
import { test } from "node:test";

import { timelineRows } from "../../../chatserver/web/timeline_rows.js";
import { findResponse } from "../../../chatserver/web/state/ai_responses.js";
import { after, event, message, messageEvent, messages, reading } from "./builders.mjs";

const piece = (index, text = `word${index} `, change = {}) => ({
  type: "signal",
  frame: { kind: "ai.delta", chat: "c1", from: "ai-ada", turn: "t1", seq: 3, index, text, ...change },
  now: 1,
});

const joined = (index, text, change = {}) => ({
  type: "response",
  frame: { chat: "c1", turn: "t1", seq: 3, index, text, ...change },
});

const answered = (seq) => event(messageEvent(1, message(seq, { sender: "ai-ada" })));

const start = () => reading(messages(1, 3), { kind: "companion", name: "Ada" });

const shown = (state) => findResponse(state.responses, state.chats.get("c1"))?.text ?? null;

const answerRows = (state) =>
  timelineRows(state, state.chats.get("c1"), 1).filter((row) => row.type === "answer");

test("pieces of an answer are one text, whatever comes twice or too early", () => {
  const state = after(start(), piece(0, ""), piece(1), piece(1), piece(3), piece(2), piece(2));

  assert.equal(shown(state), "word1 word2 word3 ");
  assert.equal(answerRows(state)[0].text, "word1 word2 word3 ");
});

test("an answer with a piece missing is not shown until the server has said it all", () => {
  const broken = after(start(), piece(4), piece(5));

  const whole = after(broken, joined(3, "one two three "));

  assert.equal(shown(broken), null);
  assert.equal(broken.responses.get("c1").isBroken, true);
  assert.equal(shown(whole), "one two three word4 word5 ");
  assert.equal(whole.responses.get("c1").isBroken, false);
});

test("what was said so far does not take back what came meanwhile", () => {
  const state = after(start(), piece(0, ""), piece(1), piece(2), joined(1, "word1 "));

  assert.equal(shown(state), "word1 word2 ");
});

test("the message takes the place of the answer, whichever comes first", () => {
  const said = after(start(), piece(0, ""), piece(1), answered(4));
  const late = after(start(), answered(4), piece(2), joined(2, "word1 word2 "));

  assert.equal(said.responses.has("c1"), false);
  assert.deepEqual([shown(late), answerRows(late)], [null, []]);
});

test("a message of the user's own leaves the answer where it is", () => {
  const own = event(messageEvent(1, message(4, { sender: "alice" })));

  assert.equal(shown(after(start(), piece(0, ""), piece(1), own)), "word1 ");
});

test("an answer that is begun anew starts from nothing, and the old one is over", () => {
  const again = { turn: "t2" };
  const state = after(start(), piece(0, ""), piece(1), piece(0, "", again), piece(1, "new ", again));

  assert.equal(shown(state), "new ");
});

test("an answer to an earlier message does not come back", () => {
  const later = { turn: "t9", seq: 9 };
  const state = after(start(), piece(0, "", later), piece(1, "later ", later), piece(2));

  assert.equal(shown(state), "later ");
});

test("an answer that has ended has nothing to stop", () => {
  const state = after(start(), piece(0, ""), piece(1, "done", { end: "done" }));

  assert.equal(answerRows(state)[0].isOver, true);
});

test("a tool is shown until the text goes on", () => {
  const using = after(start(), piece(0, ""), piece(1), piece(2, "", { tool: "weather" }));

  assert.equal(answerRows(using)[0].tool, "weather");
  assert.equal(shown(using), "word1 ");
  const further = after(using, piece(3, "sunny"));
  assert.equal(answerRows(further)[0].tool, null);
  assert.equal(shown(further), "word1 sunny");
});

test("that nobody is answering ends what is broken and nothing else", () => {
  const nobody = joined(0, "", { turn: "", seq: 0 });

  assert.equal(after(start(), piece(5), nobody).responses.has("c1"), false);
  assert.equal(shown(after(start(), piece(0, ""), piece(1), nobody)), "word1 ");
});

test("more pieces than may wait are dropped, and the server is asked", () => {
  const many = Array.from({ length: 600 }, (_, n) => piece(n + 5));
  const state = after(start(), ...many);

  assert.ok(state.responses.get("c1").ahead.size <= 500);
  assert.equal(state.responses.get("c1").isBroken, true);
});
