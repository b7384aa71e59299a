// Tabs that share a connection: a follower's calls reach the state of the leader.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as sdk from "tierchat/state";
import type { Listener } from "#dist/engine/backend.js";
import type { Engine } from "#dist/engine/engine.js";
import { StateView } from "#dist/engine/state_view.js";
import { SharedBackend } from "#dist/tabs/shared_backend.js";

const CHAT = "g-trip";
const START_MS = 5_000;

/** Install a fake of Web Locks, which Node does not have. */
function installLocks(): void {
  const locks = new Map<string, Promise<unknown>>();
  const request = (name: string, options: { signal: AbortSignal }, run: () => unknown): unknown => {
    const aborted = new Promise<never>((_, reject) => {
      options.signal.addEventListener("abort", () => reject(options.signal.reason as Error));
    });
    const previous = locks.get(name);
    const current = previous === undefined ? Promise.resolve(run()) : previous.then(run);
    locks.set(name, current);
    return Promise.race([current, aborted]);
  };
  Object.defineProperty(globalThis, "navigator", { value: { locks: { request } } });
}

/** Return an engine without a socket, with the real state of a user in a group. */
function createEngine(listener: Listener): Engine {
  const state = new sdk.ClientState("phone");
  state.handleWelcome({ user: "alice", epoch: "e1", seq: 0, large: [] } as never, 0);
  state.applyChatList({ chats: [{ chat: CHAT, kind: "group", name: "Trip" }] } as never);
  const view = new StateView(state);
  return {
    ...{ user: "alice", device: "phone", isOnline: true },
    start: () => Promise.resolve(),
    stop: () => Promise.resolve(),
    listChats: () => view.listChats(),
    describe: (chat: string) => view.describe(chat),
    messages: (chat: string) => view.messages(chat),
    pending: (chat: string) => view.pending(chat),
    draft: () => "",
    applyInfo: (info: Parameters<Engine["applyInfo"]>[0]) => {
      state.applyInfo(info);
      state.touched.add(info.chat);
      listener.onChange(view.popTouched());
    },
  } as Partial<Engine> as Engine;
}

/** A tab. `waitUntil` waits for a change after which `isDone` is true. */
class Tab {
  readonly backend: SharedBackend;
  #changed: () => void = () => {};

  constructor(name: string) {
    const onChange = (): void => this.#changed();
    const listener = { onEvents: onChange, onChange, onEnd: onChange };
    this.backend = new SharedBackend(name, createEngine, listener);
  }

  waitUntil(isDone: () => boolean): Promise<void> {
    return new Promise((resolve) => {
      this.#changed = () => {
        if (isDone()) resolve();
      };
      this.#changed();
    });
  }
}

test("a follower's chat info reaches the leader and all tabs", { timeout: 10_000 }, async () => {
  installLocks();
  const [leader, follower, third] = [new Tab("t"), new Tab("t"), new Tab("t")];
  const tabs = [leader, follower, third];
  try {
    for (const { backend } of tabs) await backend.start(START_MS, true);
    assert.deepEqual(
      tabs.map(({ backend }) => backend.isLeader),
      [true, false, false],
    );
    assert.equal(follower.backend.describe(CHAT)?.isComplete, false);

    const info = { chat: CHAT, kind: "group", name: "Sea", members: ["alice", "bob"], count: 2 };
    follower.backend.applyInfo({ ...info, roles: { bob: "owner" }, slow_s: 5 } as never);

    for (const tab of tabs) {
      await tab.waitUntil(() => tab.backend.describe(CHAT)?.isComplete === true);
      const description = tab.backend.describe(CHAT);
      assert.deepEqual(
        [description?.name, description?.members, description?.slowS],
        ["Sea", { alice: "member", bob: "owner" }, 5],
      );
    }
  } finally {
    for (const { backend } of tabs.reverse()) await backend.stop();
  }
});
