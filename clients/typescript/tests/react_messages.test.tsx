// Message lists of tierchat/react: pages, changes of older messages, and operations of the user.

import assert from "node:assert/strict";
import { test } from "node:test";

import { render, type Rendered } from "./react/rendering.js";
import { entryOf, StateClient } from "./react/state_client.js";

import type { ReactElement } from "react";
import * as hooks from "tierchat/react";
import { ClientState } from "tierchat/state";

const CHAT = "g-a";

/** A chat with `top` messages on the server; this device receives the newest one as an event. */
class Stage {
  readonly client: StateClient;
  view!: hooks.MessagesView;
  tree!: Rendered;

  constructor(top: number, bounds = {}) {
    this.client = new StateClient(new ClientState("phone", bounds));
    this.client.answer = async ({ before, limit }) => {
      const end = (before as number | undefined) ?? top + 1;
      const first = Math.max(1, end - (limit as number));
      const seqs = Array.from({ length: end - first }, (_, index) => first + index);
      const messages = seqs.map((seq) => entryOf(CHAT, seq));
      return { type: "page", chat: CHAT, messages, tier: "warm", more: first > 1 };
    };
    this.client.connect();
    this.client.entry(CHAT, top);
  }

  async open(): Promise<void> {
    const setView = (view: hooks.MessagesView): void => void (this.view = view);
    function Messages(): ReactElement {
      const view = hooks.useMessages(CHAT);
      setView(view);
      return <p>{view.messages.length}</p>;
    }
    this.tree = await render(this.client, <Messages />);
  }

  get seqs(): number[] {
    return this.view.messages.map(({ seq }) => seq);
  }

  body(seq: number): string | undefined {
    return this.view.messages.find((message) => message.seq === seq)?.body;
  }
}

/** Return the numbers from `first` to `last`. */
function range(first: number, last: number): number[] {
  return Array.from({ length: last - first + 1 }, (_, index) => first + index);
}

test("older pages are added without a gap, even if the client keeps fewer messages", async () => {
  const stage = new Stage(130, { entriesMax: 20 });
  await stage.open();
  assert.deepEqual(stage.seqs, range(80, 130)); // the client keeps only 111 to 130
  assert.deepEqual([stage.view.hasOlder, stage.view.isLoading], [true, false]);
  const newest = stage.view.messages.at(-1);

  await stage.tree.run(() => void Promise.all([stage.view.loadOlder(), stage.view.loadOlder()]));
  assert.deepEqual(stage.seqs, range(30, 130)); // two calls at once load one page
  await stage.tree.run(() => void stage.view.loadOlder());
  assert.deepEqual([stage.seqs, stage.view.hasOlder], [range(1, 130), false]);
  const asked = stage.client.requests.length;
  await stage.tree.run(() => void stage.view.loadOlder());
  assert.equal(stage.client.requests.length, asked);
  await stage.tree.run(() => stage.client.entry(CHAT, 131));

  assert.deepEqual(stage.seqs, range(1, 131));
  assert.equal(stage.view.messages.at(-2), newest);
  await stage.tree.unmount();
});

test("changes apply to messages that the client does not keep", async () => {
  const stage = new Stage(60, { entriesMax: 5 });
  await stage.open();
  assert.deepEqual(stage.seqs, range(10, 60));

  await stage.tree.run(() => {
    stage.client.entry(CHAT, 61, { kind: "edit", target: 20, body: "edited" });
    stage.client.entry(CHAT, 62, { kind: "reaction", target: 21, body: "👍" });
    stage.client.entry(CHAT, 63, { kind: "delete", target: 22, body: "" });
    stage.client.receive({
      ...{ type: "event", epoch: "e1", seq: 5, kind: "hidden", chat: CHAT, hidden: [23] },
    });
  });

  assert.equal(stage.body(20), "edited");
  const [, , reacted, deleted, hidden] = stage.view.messages.slice(9, 14);
  assert.deepEqual(reacted?.reactions, { bob: "👍" });
  assert.deepEqual([deleted?.seq, deleted?.deleted, deleted?.body], [22, true, ""]);
  assert.deepEqual([hidden?.seq, hidden?.deleted, hidden?.body], [23, true, ""]);
  await stage.tree.unmount();
});

test("older messages are dropped if entries after them are skipped", async () => {
  const stage = new Stage(60, { entriesMax: 20 });
  await stage.open();
  assert.equal(stage.seqs.length, 51);

  const skipped = { type: "skipped", chat: CHAT, after: 60, upto: 100 } as const;
  await stage.tree.run(() => stage.client.deliver([skipped], new Set([CHAT])));

  assert.deepEqual([stage.seqs, stage.view.hasOlder], [range(41, 60), true]);
  await stage.tree.unmount();
});

test("a page that cannot be loaded is an error until the next connection", async () => {
  const stage = new Stage(60);
  const { answer } = stage.client;
  stage.client.answer = () => Promise.reject(new Error("the server does not answer"));
  await stage.open();
  assert.deepEqual([stage.view.error?.message, stage.seqs], ["the server does not answer", [60]]);

  stage.client.answer = answer;
  stage.client.disconnect();
  await stage.tree.run(() => stage.client.connect());

  assert.deepEqual([stage.view.error, stage.seqs], [null, range(10, 60)]);
  await stage.tree.unmount();
});

test("the text of a message disappears when it expires", async (context) => {
  const stage = new Stage(1);
  context.mock.timers.enable({ apis: ["Date", "setTimeout"], now: 1_000_000 });
  stage.client.entry(CHAT, 2, { expires_at: 1_060 });
  await stage.open();
  assert.equal(stage.body(2), "text 2");

  await stage.tree.run(() => context.mock.timers.tick(60_001));

  assert.equal(stage.body(2), "");
  await stage.tree.unmount();
});

test("a send is pending until its message arrives", async () => {
  const stage = new Stage(1);
  await stage.open();

  await stage.tree.run(() => void stage.client.chat(CHAT).send({ text: "mine" }));
  const [pending] = stage.view.pending;
  assert.deepEqual([pending?.stage, pending?.fields["body"]], ["inFlight", "mine"]);
  const id = stage.client.state.popFrames().find(({ type }) => type === "send")?.["id"];
  const place = { seq: 2, ts: 2_000, mid: "m2", dup: false, durability: "hot" };
  await stage.tree.run(() => {
    stage.client.receive({ type: "ack", id, chat: CHAT, ref: pending?.ref, ...place });
  });
  assert.equal(stage.view.pending.length, 1); // acked, but not shown
  const own = { sender: "alice", ref: pending?.ref ?? "", body: "mine", mid: "m2" };
  await stage.tree.run(() => stage.client.entry(CHAT, 2, own));

  assert.deepEqual([stage.view.pending, stage.body(2)], [[], "mine"]);
  assert.equal(stage.client.chat(CHAT).pending.length, 1); // not stored yet
  await stage.tree.unmount();
});

test("a refused operation can be retried or discarded", async () => {
  const stage = new Stage(1);
  await stage.open();
  const refuse = async (): Promise<void> => {
    const sent = stage.client.state.popFrames().findLast(({ type }) => type === "send");
    const error = { type: "error", id: sent?.["id"], code: "forbidden", message: "muted" };
    await stage.tree.run(() => stage.client.receive({ ...error, temporary: false }));
  };
  await stage.tree.run(() => void stage.client.chat(CHAT).send({ text: "mine", replyTo: 1 }));
  await refuse();
  const [failed] = stage.view.failed;
  assert.deepEqual([failed?.error.code, stage.view.pending], ["forbidden", []]);

  await stage.tree.run(() => failed?.retry());
  const [again] = stage.view.pending;
  assert.deepEqual([stage.view.failed, again?.fields["body"]], [[], "mine"]);
  assert.equal(again?.fields["reply_to"], 1);
  assert.notEqual(again?.ref, failed?.ref);
  await refuse();
  await stage.tree.run(() => stage.view.failed[0]?.discard());

  assert.deepEqual([stage.view.failed, stage.view.pending], [[], []]);
  await stage.tree.unmount();
});
