// Replays the recorded histories of tests/histories, like the Python SDK.

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

test("there are histories of all kinds", () => {
  assert.deepEqual(files, ["random.jsonl", "reconnects.jsonl", "reloads.jsonl", "scripted.jsonl"]);
});
