// Stores that fail, and checksums without `crypto.subtle`.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { BestEffortStore, MemoryStore, type Store } from "tierchat";
import { digestSlowly } from "#dist/http/sha256.js";

const POSITION = { v: 1 } as never;
const FAULTS: Record<string, () => Promise<never>> = {
  throws: () => {
    throw new Error("refused");
  },
  rejects: () => Promise.reject(new Error("refused")),
  hangs: () => new Promise(() => {}),
};

for (const [name, fault] of Object.entries(FAULTS)) {
  test(`a client continues in memory if its store ${name}`, async () => {
    for (const method of ["load", "save", "delete", "close"] as const) {
      const failures: Error[] = [];
      const memory: Store = new MemoryStore();
      const inner = Object.assign(Object.create(memory) as Store, { [method]: fault });
      const store = new BestEffortStore(inner, (error) => failures.push(error), 50);

      const loaded = await store.load();
      await store.save({ place: POSITION });
      await store.save({ place: POSITION });
      await store.delete();
      await store.close();

      assert.equal(failures.length, 1, method);
      assert.equal(loaded.place, null);
    }
  });
}

test("after a failed save, the store is deleted: its outbox is out of date", async () => {
  const inner = new MemoryStore();
  await inner.save({ place: POSITION });
  const deleted = new Promise<void>((resolve) => {
    const remove = inner.delete.bind(inner);
    inner.delete = () => remove().then(resolve);
  });
  const store = new BestEffortStore(inner, () => {});
  assert.notEqual((await store.load()).place, null);
  inner.save = () => Promise.reject(new Error("full"));

  await store.save({ place: POSITION });
  await deleted;

  assert.equal((await inner.load()).place, null);
});

test("SHA-256 without `crypto.subtle` is right at each length around a block", () => {
  for (const length of [0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 1_000, 100_003]) {
    const data = Uint8Array.from({ length }, (_, index) => (index * 31) % 251);
    const expected = createHash("sha256").update(data).digest("hex");

    assert.equal(Buffer.from(digestSlowly(data)).toString("hex"), expected, String(length));
    // Data may be a part of a larger buffer.
    const part = new Uint8Array([9, ...data]).subarray(1);
    assert.equal(Buffer.from(digestSlowly(part)).toString("hex"), expected);
  }
});
