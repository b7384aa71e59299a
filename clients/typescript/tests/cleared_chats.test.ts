// Messages that the user has cleared or deleted only for themselves never reappear.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as sdk from "tierchat/state";

import { buildEntry, StateClient } from "./react/state_client.js";

const CHAT = "g-large";

/** Return a client with messages 1 to 3 of a large chat. */
function connectClient(): StateClient {
  const client = new StateClient();
  client.connect();
  for (const seq of [1, 2, 3]) client.entry(CHAT, seq);
  getChatState(client.state).isLarge = true;
  return client;
}

function getChatState(state: sdk.ClientState): sdk.ChatState {
  const chat = state.chats.get(CHAT);
  assert.ok(chat);
  return chat;
}

/** Message 7 arrives; messages 4 to 6 were missed and come from the history, with their texts. */
function catchUp(client: StateClient): void {
  const event = { type: "event", epoch: "e1", seq: 0, kind: "message", chat: CHAT };
  client.receive({ ...event, cs: 7, message: buildEntry(CHAT, 7) });
  const requests = client.state.popFrames().filter(({ type }) => type === "history");
  assert.deepEqual(
    requests.map((frame) => frame["after"]),
    [3],
  );
  const messages = [4, 5, 6].map((seq) => buildEntry(CHAT, seq));
  const page = { type: "page", chat: CHAT, tier: "warm", more: false, messages };
  client.receive({ ...page, id: requests[0]?.["id"] });
}

function listSeqs(state: sdk.ClientState): number[] {
  return getChatState(state)
    .log.messages()
    .map(({ seq }) => seq);
}

test("cleared messages do not reappear after a catch-up, from history or from the store", () => {
  const client = connectClient();

  getChatState(client.state).clear(5); // on another device, which has them all
  assert.deepEqual([listSeqs(client.state), client.chat(CHAT).lastMessage], [[], null]);
  catchUp(client);

  assert.deepEqual(listSeqs(client.state), [6, 7]);
  const older = [1, 2, 3, 4, 5].map((seq) => buildEntry(CHAT, seq));
  client.state.applyHistory({ chat: CHAT, messages: older } as never, false, 6);
  assert.deepEqual(listSeqs(client.state), [6, 7]);
  const chat = getChatState(client.state);
  const saved = structuredClone(sdk.saveChat(client.state, chat, new Map(), 1_000));
  assert.deepEqual(
    saved.entries.filter(({ seq }) => seq <= 3),
    [],
  );
  const fresh = new sdk.ClientState("phone");
  sdk.restore(fresh, structuredClone(sdk.buildPosition(client.state, [])), [saved], null);
  assert.deepEqual([listSeqs(fresh), getChatState(fresh).clearedUpto], [[6, 7], 5]);
  getChatState(fresh).clear(2); // an older change
  assert.equal(getChatState(fresh).clearedUpto, 5);
});

test("a message deleted for the user has no text in the events of the catch-up", () => {
  const client = connectClient();
  const added: [number, string][] = [];
  client.on((event) => {
    if (event.type === "messageAdded") added.push([event.message.seq, event.message.body]);
  });

  const event = { type: "event", epoch: "e1", seq: 4, kind: "hidden", chat: CHAT };
  client.receive({ ...event, hidden: [5] });
  catchUp(client);

  assert.deepEqual(added, [
    [4, "text 4"],
    [5, ""],
    [6, "text 6"],
    [7, "text 7"],
  ]);
});
