// Replays the recorded histories of tests/histories, like the Python SDK.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";

import * as sdk from "tierchat/state";

const FOLDER = new URL("../../../../../tests/histories/", import.meta.url);

/** The names of the history files. */
export const files = readdirSync(FOLDER)
  .filter((name) => name.endsWith(".jsonl"))
  .sort();

type Call = [method: string, args: any[], result: unknown];

/** Calls of a state machine, with their results. */
export interface History {
  name: string;
  device: string;
  bounds: Partial<sdk.Bounds>;
  calls: Call[];
}

/** Return the histories of a file. */
export function load(file: string): History[] {
  const histories: History[] = [];
  for (const line of readFileSync(new URL(file, FOLDER), "utf8").trimEnd().split("\n")) {
    const parsed = JSON.parse(line);
    if (Array.isArray(parsed)) histories.at(-1)?.calls.push(parsed as Call);
    else histories.push({ ...parsed, name: parsed.history, calls: [] });
  }
  return histories;
}

/** Return a value in the format of the histories. */
export function encode(value: unknown): unknown {
  if (value === undefined || value === null) return null;
  if (value instanceof sdk.ChatError) return { error: value.code, temporary: value.isTemporary };
  if (Array.isArray(value)) return value.map(encode);
  if (typeof value !== "object") return value;
  const fields = { ...value } as Record<string, unknown>;
  if ("event" in fields && "before" in fields) return encode(fields["event"]);
  const isEntry = "mid" in fields && "sender" in fields;
  const entries = Object.entries(fields).filter(([, field]) => !(isEntry && isDefault(field)));
  return Object.fromEntries(entries.map(([name, field]) => [name, encode(field)]));
}

function isDefault(value: unknown): boolean {
  if (value === null || value === undefined || value === 0 || value === false) return true;
  return typeof value === "object" && Object.keys(value).length === 0;
}

function describe(state: sdk.ClientState): unknown {
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

/** Return the client after a reload, restored from what a store would save. */
function restart(old: sdk.ClientState, bounds: Partial<sdk.Bounds>, unconsumed: sdk.QueuedEvent[]) {
  const firsts = sdk.findFirstSeqs(old, unconsumed) ?? new Map<string, number>();
  const chats = [...old.chats.values()].map((chat) => sdk.saveChat(old, chat, firsts, 1_000));
  const saved = structuredClone({
    position: sdk.buildPosition(old, unconsumed),
    chats,
    outbox: sdk.buildOutbox(old, unconsumed),
  });
  const fresh = new sdk.ClientState("another", bounds);
  sdk.restore(fresh, saved.position, saved.chats, saved.outbox);
  return fresh;
}

/** Called with the events that the state delivers. */
export type Deliver = (player: Player, events: sdk.QueuedEvent[]) => void | Promise<void>;

/** Replays a history call by call and compares the results. */
export class Player {
  readonly history: History;
  state: sdk.ClientState;
  /** The number of the call. */
  number = 0;
  readonly #queued: sdk.QueuedEvent[] = [];

  constructor(history: History) {
    this.history = history;
    this.state = new sdk.ClientState(history.device, history.bounds);
  }

  /** Play the whole history. After a `restart`, `state` is another object. */
  async play(deliver: Deliver = () => {}): Promise<void> {
    const { name, calls } = this.history;
    for (const [number, [method, args, result]] of calls.entries()) {
      this.number = number;
      const actual = this.#call(method, args);
      assert.deepEqual(encode(actual), encode(result), `${name}, call ${number}: ${method}`);
      if (method !== "popQueuedEvents") continue;
      const events = actual as sdk.QueuedEvent[];
      this.#queued.push(...events);
      await deliver(this, events);
    }
  }

  #call(method: string, args: any[]): unknown {
    if (method === "describe") return describe(this.state);
    if (method === "restart") {
      const unconsumed = this.#queued.slice(this.#queued.length - args[0]);
      this.state = restart(this.state, this.history.bounds, unconsumed);
      return null;
    }
    if (method === "clearChat") return this.state.chats.get(args[0])?.clear(args[1]);
    const [first, ...others] = args;
    const isEnqueue = method === "enqueue";
    const argument = isEnqueue ? sdk.createOutboxEntry(first.ref, first.chat, first.fields) : first;
    try {
      const call = (this.state as unknown as Record<string, (...args: any[]) => unknown>)[method];
      assert.ok(call, method);
      return call.apply(this.state, args.length === 0 ? [] : [argument, ...others]);
    } catch (error) {
      if (!(error instanceof sdk.ChatError)) throw error;
      return error;
    }
  }
}
