// The recorded histories of tests/histories, which the Python SDK replays, too.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { files, load, Player } from "./histories/player.js";

for (const file of files) {
  describe(file, () => {
    for (const history of load(file)) {
      test(history.name, () => new Player(history).play());
    }
  });
}

test("all kinds of histories are there", () => {
  assert.deepEqual(files, ["random.jsonl", "reconnects.jsonl", "reloads.jsonl", "scripted.jsonl"]);
});
