// The components of tierchat/react, as a user sees them.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as react from "tierchat/react";
import { type Rendered, render } from "./react/rendering.js";
import { buildEntry, StateClient } from "./react/state_client.js";

const CHAT = "g-a";

function connected(): StateClient {
  const client = new StateClient();
  client.connect();
  client.entry(CHAT, 1, { body: "Hello" });
  return client;
}

function click(tree: Rendered, selector: string): Promise<void> {
  return tree.run(() => tree.find(selector).click());
}

/** Change the text of the field, as a browser does. */
function type(tree: Rendered, text: string): Promise<void> {
  return tree.run(() => {
    const field = tree.find("textarea");
    const { set } = Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, "value") ?? {};
    set?.call(field, text);
    field.dispatchEvent(new Event("input", { bubbles: true }));
  });
}

function press(tree: Rendered, key: string, options: KeyboardEventInit = {}): Promise<void> {
  return tree.run(() => {
    const event = new KeyboardEvent("keydown", { key, bubbles: true, ...options });
    tree.find("textarea").dispatchEvent(event);
  });
}

test("the chat list shows names and unread counts, and selects", async () => {
  const client = connected();
  client.entry("d-x", 1, { ts: 9_000 });
  const info = { chat: "d-x", kind: "direct", members: ["alice", "bob"] };
  client.receive({ type: "event", epoch: "e1", seq: 3, kind: "chat", chat: "d-x", info });
  const selected: string[] = [];
  const select = (id: string): void => void selected.push(id);

  const tree = await render(client, <react.ChatList current={CHAT} onSelect={select} />);

  assert.match(tree.find("[data-chat=d-x]").textContent ?? "", /^bob text 1/);
  assert.equal(tree.find("[data-chat=d-x] b").getAttribute("aria-label"), "1 unread");
  assert.equal(tree.find("[aria-current]").dataset["chat"], CHAT);
  await click(tree, "[data-chat=d-x]");
  assert.deepEqual(selected, ["d-x"]);
  await tree.unmount();
});

test("the message list shows states, quotes and deletions, and marks as read", async () => {
  const client = connected();
  const own = (seq: number): object => ({ sender: "alice", ref: `own-${seq}` });
  client.entry(CHAT, 2, { ...own(2), body: "Hi", reply_to: 1, reactions: { bob: "👍" } });
  client.entry(CHAT, 3, { ...own(3), body: "news" });
  const tree = await render(client, <react.MessageList chat={CHAT} />);
  const message = (seq: number): HTMLElement => tree.find(`[data-seq="${seq}"].tierchat-message`);

  assert.deepEqual([message(1).dataset["own"], message(2).dataset["state"]], [undefined, "sent"]);
  assert.equal(tree.find("blockquote").textContent, "bob Hello");
  assert.equal(tree.find(".tierchat-reactions").textContent, "👍");
  const read = { user: "bob", read: 2, received: 3 };
  await tree.run(() => {
    client.receive({ type: "event", epoch: "e1", seq: 4, kind: "read", chat: CHAT, read });
  });
  assert.deepEqual(
    [2, 3].map((seq) => message(seq).dataset["state"]),
    ["read", "received"],
  );
  await tree.run(() => {
    const message = buildEntry(CHAT, 4, { kind: "delete", target: 1, body: "" });
    client.receive({ type: "event", epoch: "e1", seq: 5, kind: "delete", chat: CHAT, message });
  });
  assert.equal(message(1).textContent, "This message was deleted");
  await tree.run(() => {
    const message = buildEntry(CHAT, 5);
    client.receive({ type: "event", epoch: "e1", seq: 6, kind: "text", chat: CHAT, message });
  });
  const marked = client.requests.filter(({ type }) => type === "mark").map(({ read }) => read);
  assert.equal(marked.at(-1), 5);
  await tree.unmount();
});

test("Enter sends, Shift+Enter and input methods do not", async () => {
  const client = connected();
  const sent: (string | undefined)[] = [];
  const tree = await render(
    client,
    <>
      <react.Composer chat={CHAT} replyTo={1} onSend={({ body }) => void sent.push(body)} />
      <react.MessageList chat={CHAT} />
    </>,
  );

  await type(tree, "  ");
  await press(tree, "Enter");
  await type(tree, "One");
  await press(tree, "Enter", { shiftKey: true });
  await press(tree, "Enter", { isComposing: true });
  assert.deepEqual(sent, []);
  await press(tree, "Enter");

  assert.deepEqual(sent, ["One"]);
  assert.equal((tree.find("textarea") as HTMLTextAreaElement).value, "");
  assert.equal(tree.find("[data-state=pending]").textContent, "One");
  const [operation] = client.chat(CHAT).pending;
  assert.deepEqual([operation?.fields["body"], operation?.fields["reply_to"]], ["One", 1]);
  const typing = client.notified.filter(({ type }) => type === "typing").map(({ on }) => on);
  assert.deepEqual(typing, [true, false]);
  await tree.unmount();
});

test("a refused message has its reason, and can be sent again", async () => {
  const client = connected();
  const tree = await render(client, <react.MessageList chat={CHAT} />);
  await tree.run(() => void client.chat(CHAT).send({ body: "No" }));
  const id = client.state.popFrames().find(({ type }) => type === "send")?.["id"];
  const refusal = { code: "forbidden", message: "you are muted", temporary: false };
  await tree.run(() => client.receive({ type: "error", id, ...refusal }));
  assert.equal(tree.find("[role=alert]").textContent, "you are muted");

  await click(tree, "[data-state=failed] button");

  assert.equal(tree.find("[data-state=pending]").textContent, "No");
  assert.throws(() => tree.find("[data-state=failed]"));
  await tree.unmount();
});

test("members have their presence, and a companion's response can be stopped", async () => {
  const client = connected();
  const info = { chat: CHAT, kind: "group", members: ["bob"], roles: { bob: "owner" } };
  client.receive({ type: "event", epoch: "e1", seq: 2, kind: "chat", chat: CHAT, info });
  const tree = await render(
    client,
    <>
      <react.MemberList chat={CHAT} />
      <react.CompanionView chat={CHAT} />
    </>,
  );
  assert.equal(tree.text(), " bob owner");
  assert.equal(tree.find(".tierchat-presence").dataset["state"], "unknown");

  const signal = { type: "signal", from: "bob" };
  await tree.run(() => client.receive({ ...signal, kind: "presence", state: "away" }));
  const piece = { kind: "ai.delta", chat: CHAT, turn: "t1", seq: 1, index: 0, text: "Well" };
  await tree.run(() => client.receive({ ...signal, ...piece }));

  assert.equal(tree.find(".tierchat-presence").getAttribute("aria-label"), "away");
  assert.equal(tree.find(".tierchat-response p").textContent, "Well");
  await click(tree, ".tierchat-response button");
  assert.equal(client.requests.at(-1)?.["type"], "stop");
  await tree.unmount();
});
