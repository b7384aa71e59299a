// The recorded histories of tests/histories, which the Python SDK replays, too.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { describe, test } from "node:test";

import * as sdk from "tierchat/state";

const FOLDER = new URL("../../../../tests/histories/", import.meta.url);
const files = readdirSync(FOLDER).filter((name) => name.endsWith(".jsonl")).sort();

type Call = [method: string, args: any[], result: unknown];

interface History {
  name: string;
  device: string;
  bounds: Partial<sdk.Bounds>;
  calls: Call[];
}

function load(file: string): History[] {
  const found: History[] = [];
  for (const line of readFileSync(new URL(file, FOLDER), "utf8").trimEnd().split("\n")) {
    const parsed = JSON.parse(line);
    if (Array.isArray(parsed)) found.at(-1)?.calls.push(parsed as Call);
    else found.push({ ...parsed, name: parsed.history, calls: [] });
  }
  return found;
}

/** Return a value as the histories have it. */
function plain(value: unknown): unknown {
  if (value === undefined || value === null) return null;
  if (value instanceof sdk.ChatError) return { error: value.code, temporary: value.isTemporary };
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object") return value;
  const fields = { ...value } as Record<string, unknown>;
  if ("event" in fields && "before" in fields) return plain(fields["event"]);
  const isEntry = "mid" in fields && "sender" in fields;
  const entries = Object.entries(fields).filter(([, each]) => !(isEntry && isDefault(each)));
  return Object.fromEntries(entries.map(([name, each]) => [name, plain(each)]));
}

function isDefault(value: unknown): boolean {
  if (value === null || value === undefined || value === 0 || value === false) return true;
  return typeof value === "object" && Object.keys(value).length === 0;
}

function view(state: sdk.ClientState): unknown {
  return {
    cursor: state.cursor,
    outbox: [...state.outbox].map(({ ref, stage }) => [ref, stage]),
    chats: [...state.chats.values()].map((chat) => ({
      chat: chat.id,
      kind: chat.kind,
      name: chat.name,
      members: chat.members,
      slowS: chat.slowS,
      retentionS: chat.retentionS,
      muted: chat.muted,
      isLarge: chat.isLarge,
      isLeft: chat.isLeft,
      isEnded: chat.isEnded,
      needsHistory: chat.needsHistory,
      shown: chat.log.shown,
      top: chat.top,
      read: chat.read,
      unread: chat.unread,
      marks: Object.fromEntries(
        [...chat.marks].map(([user, { read, received }]) => [user, [read, received]]),
      ),
      entries: chat.log.entries(),
    })),
  };
}

/** Return the client after a reload, through what a store would keep. */
function restart(old: sdk.ClientState, bounds: Partial<sdk.Bounds>, untaken: sdk.QueuedEvent[]) {
  const firsts = sdk.firstsOf(old, untaken) ?? new Map<string, number>();
  const chats = [...old.chats.values()].map((chat) => sdk.saveChat(old, chat, firsts, 1_000));
  const saved = structuredClone({
    place: sdk.placeOf(old, untaken),
    chats,
    outbox: sdk.outboxOf(old, untaken),
  });
  const fresh = new sdk.ClientState("another", bounds);
  sdk.restore(fresh, saved.place, saved.chats, saved.outbox);
  return fresh;
}

function replay(history: History): void {
  let state = new sdk.ClientState(history.device, history.bounds);
  const queued: sdk.QueuedEvent[] = [];
  for (const [number, [method, args, result]] of history.calls.entries()) {
    let found: unknown;
    if (method === "describe") {
      found = view(state);
    } else if (method === "restart") {
      state = restart(state, history.bounds, queued.slice(queued.length - args[0]));
    } else {
      if (method === "do") args[0] = sdk.newOutboxEntry(args[0].ref, args[0].chat, args[0].fields);
      try {
        const call = (state as unknown as Record<string, (...given: any[]) => unknown>)[method];
        assert.ok(call, method);
        found = call.apply(state, args);
      } catch (error) {
        if (!(error instanceof sdk.ChatError)) throw error;
        found = error;
      }
      if (method === "takeQueued") queued.push(...(found as sdk.QueuedEvent[]));
    }
    assert.deepEqual(plain(found), plain(result), `${history.name}, call ${number}: ${method}`);
  }
}

for (const file of files) {
  describe(file, () => {
    for (const history of load(file)) {
      test(history.name, () => replay(history));
    }
  });
}

test("all kinds of histories are there", () => {
  assert.deepEqual(files, ["random.jsonl", "reconnects.jsonl", "reloads.jsonl", "scripted.jsonl"]);
});
