// Message lists of tierchat/react: pages, changes of older messages, and operations of the user.

import assert from "node:assert/strict";
import { test } from "node:test";
import type { ReactElement } from "react";
import * as hooks from "tierchat/react";
import { ClientState } from "tierchat/state";
import { type Rendered, render } from "./react/rendering.js";
import { buildEntry, StateClient } from "./react/state_client.js";

const CHAT = "g-a";

/** A chat with `top` messages on the server; this device receives the newest one as an event. */
class Fixture {
  readonly client: StateClient;
  view!: hooks.MessagesView;
  tree!: Rendered;

  constructor(top: number, bounds = {}) {
    this.client = new StateClient(new ClientState("phone", bounds));
    this.client.respond = async ({ before, limit }) => {
      const end = (before as number | undefined) ?? top + 1;
      const first = Math.max(1, end - (limit as number));
      const seqs = Array.from({ length: end - first }, (_, index) => first + index);
      const messages = seqs.map((seq) => buildEntry(CHAT, seq));
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
  const fixture = new Fixture(130, { entriesMax: 20 });
  await fixture.open();
  assert.deepEqual(fixture.seqs, range(80, 130)); // the client keeps only 111 to 130
  assert.deepEqual([fixture.view.hasOlder, fixture.view.isLoading], [true, false]);
  const newest = fixture.view.messages.at(-1);

  await fixture.tree.run(() => {
    void Promise.all([fixture.view.loadOlder(), fixture.view.loadOlder()]);
  });
  assert.deepEqual(fixture.seqs, range(30, 130)); // two calls at once load one page
  await fixture.tree.run(() => void fixture.view.loadOlder());
  assert.deepEqual([fixture.seqs, fixture.view.hasOlder], [range(1, 130), false]);
  const count = fixture.client.requests.length;
  await fixture.tree.run(() => void fixture.view.loadOlder());
  assert.equal(fixture.client.requests.length, count);
  await fixture.tree.run(() => fixture.client.entry(CHAT, 131));

  assert.deepEqual(fixture.seqs, range(1, 131));
  assert.equal(fixture.view.messages.at(-2), newest);
  await fixture.tree.unmount();
});

test("changes apply to messages that the client does not keep", async () => {
  const fixture = new Fixture(60, { entriesMax: 5 });
  await fixture.open();
  assert.deepEqual(fixture.seqs, range(10, 60));

  await fixture.tree.run(() => {
    fixture.client.entry(CHAT, 61, { kind: "edit", target: 20, body: "edited" });
    fixture.client.entry(CHAT, 62, { kind: "reaction", target: 21, body: "👍" });
    fixture.client.entry(CHAT, 63, { kind: "delete", target: 22, body: "" });
    fixture.client.receive({
      ...{ type: "event", epoch: "e1", seq: 5, kind: "hidden", chat: CHAT, hidden: [23] },
    });
  });

  assert.equal(fixture.body(20), "edited");
  const [, , reacted, deleted, hidden] = fixture.view.messages.slice(9, 14);
  assert.deepEqual(reacted?.reactions, { bob: "👍" });
  assert.deepEqual([deleted?.seq, deleted?.deleted, deleted?.body], [22, true, ""]);
  assert.deepEqual([hidden?.seq, hidden?.deleted, hidden?.body], [23, true, ""]);
  await fixture.tree.unmount();
});

test("older messages are dropped if entries after them are skipped", async () => {
  const fixture = new Fixture(60, { entriesMax: 20 });
  await fixture.open();
  assert.equal(fixture.seqs.length, 51);

  const skipped = { type: "skipped", chat: CHAT, after: 60, upto: 100 } as const;
  await fixture.tree.run(() => fixture.client.deliver([skipped], new Set([CHAT])));

  assert.deepEqual([fixture.seqs, fixture.view.hasOlder], [range(41, 60), true]);
  await fixture.tree.unmount();
});

test("a page that cannot be loaded is an error until the next connection", async () => {
  const fixture = new Fixture(60);
  const { respond } = fixture.client;
  fixture.client.respond = () => Promise.reject(new Error("the server does not respond"));
  await fixture.open();
  const { error } = fixture.view;
  assert.deepEqual([error?.message, fixture.seqs], ["the server does not respond", [60]]);

  fixture.client.respond = respond;
  fixture.client.disconnect();
  await fixture.tree.run(() => fixture.client.connect());

  assert.deepEqual([fixture.view.error, fixture.seqs], [null, range(10, 60)]);
  await fixture.tree.unmount();
});

test("the text of a message disappears when it expires", async (context) => {
  const fixture = new Fixture(1);
  context.mock.timers.enable({ apis: ["Date", "setTimeout"], now: 1_000_000 });
  fixture.client.entry(CHAT, 2, { expires_at: 1_060 });
  await fixture.open();
  assert.equal(fixture.body(2), "text 2");

  await fixture.tree.run(() => context.mock.timers.tick(60_001));

  assert.equal(fixture.body(2), "");
  await fixture.tree.unmount();
});

test("a send is pending until its message arrives", async () => {
  const fixture = new Fixture(1);
  await fixture.open();

  await fixture.tree.run(() => void fixture.client.chat(CHAT).send({ body: "mine" }));
  const [pending] = fixture.view.pending;
  assert.deepEqual([pending?.stage, pending?.fields["body"]], ["inFlight", "mine"]);
  const id = fixture.client.state.popFrames().find(({ type }) => type === "send")?.["id"];
  const position = { seq: 2, ts: 2_000, mid: "m2", dup: false, durability: "hot" };
  await fixture.tree.run(() => {
    fixture.client.receive({ type: "ack", id, chat: CHAT, ref: pending?.ref, ...position });
  });
  assert.equal(fixture.view.pending.length, 1); // acked, but not shown
  const own = { sender: "alice", ref: pending?.ref ?? "", body: "mine", mid: "m2" };
  await fixture.tree.run(() => fixture.client.entry(CHAT, 2, own));

  assert.deepEqual([fixture.view.pending, fixture.body(2)], [[], "mine"]);
  assert.equal(fixture.client.chat(CHAT).pending.length, 1); // not stored yet
  await fixture.tree.unmount();
});

test("a refused operation can be retried or discarded", async () => {
  const fixture = new Fixture(1);
  await fixture.open();
  const refuse = async (): Promise<void> => {
    const sent = fixture.client.state.popFrames().findLast(({ type }) => type === "send");
    const error = { type: "error", id: sent?.["id"], code: "forbidden", message: "muted" };
    await fixture.tree.run(() => fixture.client.receive({ ...error, temporary: false }));
  };
  await fixture.tree.run(() => void fixture.client.chat(CHAT).send({ body: "mine", replyTo: 1 }));
  await refuse();
  const [failed] = fixture.view.failed;
  assert.deepEqual([failed?.error.code, fixture.view.pending], ["forbidden", []]);

  await fixture.tree.run(() => failed?.retry());
  const [retried] = fixture.view.pending;
  assert.deepEqual([fixture.view.failed, retried?.fields["body"]], [[], "mine"]);
  assert.equal(retried?.fields["reply_to"], 1);
  assert.notEqual(retried?.ref, failed?.ref);
  await refuse();
  await fixture.tree.run(() => fixture.view.failed[0]?.discard());

  assert.deepEqual([fixture.view.failed, fixture.view.pending], [[], []]);
  await fixture.tree.unmount();
});
