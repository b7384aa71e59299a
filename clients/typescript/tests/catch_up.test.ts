// Gaps that events of the inbox fill, although the history is not readable.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as sdk from "tierchat/state";

import { buildEntry } from "./react/state_client.js";

const CHAT = "g-left";

function connect(state: sdk.ClientState): number {
  return state.handleWelcome({ type: "welcome", user: "alice", epoch: "e1", seq: 3 }, 0);
}

function push(state: sdk.ClientState, connection: number, seq: number): void {
  const message = buildEntry(CHAT, seq);
  const frame = { type: "event", epoch: "e1", seq, kind: "text", chat: CHAT, message };
  state.handleFrame(connection, frame, 0);
}

function listSeqs(queued: sdk.QueuedEvent[]): number[] {
  return queued.flatMap(({ event }) => (event.type === "messageAdded" ? [event.message.seq] : []));
}

test("events pushed again to the next process are not skipped", () => {
  const old = new sdk.ClientState("phone");
  const first = old.handleWelcome({ type: "welcome", user: "alice", epoch: "e1", seq: 0 }, 0);
  push(old, first, 1);
  assert.deepEqual(listSeqs(old.popQueuedEvents()), [1]);
  push(old, first, 2);
  push(old, first, 3);
  const unconsumed = old.popQueuedEvents();
  const firsts = sdk.findFirstSeqs(old, unconsumed) ?? new Map<string, number>();
  const chats = [...old.chats.values()].map((chat) => sdk.saveChat(old, chat, firsts, 1_000));
  const next = new sdk.ClientState("phone");
  const position = structuredClone(sdk.buildPosition(old, unconsumed));
  sdk.restore(next, position, structuredClone(chats), null);

  const connection = connect(next);
  next.popQueuedEvents();
  const [request] = next.popFrames().filter(({ type }) => type === "history");
  const error = { type: "error", id: request?.["id"], code: "forbidden", message: "you left" };
  next.handleFrame(connection, { ...error, temporary: false }, 0);
  push(next, connection, 2);
  push(next, connection, 3);

  const queued = next.popQueuedEvents();
  assert.deepEqual(listSeqs(queued), [2, 3]);
  assert.deepEqual(
    queued.filter(({ event }) => event.type === "skipped"),
    [],
  );
});
