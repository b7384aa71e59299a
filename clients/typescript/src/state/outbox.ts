// Outbox: operations that the server must store (sends, edits, deletions, reactions).
//
// Each operation has a `ref`; retries with the same ref take effect once. An operation stays in the
// outbox until the server confirms that it is stored. In a new epoch, operations that were only
// acked are sent again.
//
//   queued → inFlight → acked → removed (stored)
//     ↑__________|________|     connection lost; new epoch

import { ChatError } from "./errors.js";
import { isEqual, type Fields } from "./model.js";

/** Wait for `stored` after an ack before a probe is sent. */
export const PROBE_S = 5;
const PROBE_AGAIN_S = 20;

/** The progress of an operation. */
export type Stage = "queued" | "inFlight" | "acked";

/** The committed position of an operation. */
export interface Position {
  seq: number;
  ts: number;
  mid: string;
}

/** One operation. `fields` is its frame without the request number. */
export interface OutboxEntry extends Position {
  readonly ref: string;
  readonly chat: string;
  readonly fields: Fields;
  stage: Stage;
  /** True if the application has received the ack. */
  isReported: boolean;
  notBeforeS: number;
  number: number;
}

/** Return a new operation. */
export function newOutboxEntry(ref: string, chat: string, fields: Fields): OutboxEntry {
  const start = { seq: 0, ts: 0, mid: "", isReported: false, notBeforeS: 0, number: 0 };
  return { ref, chat, fields, stage: "queued", ...start };
}

/** True if the operation deletes a message only for the user; no `stored` frame confirms it. */
function isHide(entry: OutboxEntry): boolean {
  return entry.fields.type === "delete" && entry.fields["for"] === "me";
}

/** True if the application waits until the operation is stored. */
export function isStoredWanted(entry: OutboxEntry): boolean {
  return entry.fields["durability"] === "stored";
}

interface Probe {
  chat: string;
  ref: string; // empty: the probe is for the whole chat
  atS: number;
}

/** The operations of one device, in order. */
export class Outbox {
  readonly #entriesMax: number;
  readonly #entries = new Map<string, OutboxEntry>();
  // The same operations by stage, so that the cost of a step does not depend on their total.
  #queued = new Map<string, OutboxEntry>();
  readonly #inFlight = new Map<string, OutboxEntry>();
  readonly #acked = new Map<string, Map<string, OutboxEntry>>(); // by chat
  #lastNumber = 0;
  readonly #probes = new Map<string, Probe>();

  constructor(entriesMax: number) {
    this.#entriesMax = entriesMax;
  }

  get size(): number {
    return this.#entries.size;
  }

  [Symbol.iterator](): IterableIterator<OutboxEntry> {
    return this.#entries.values();
  }

  /** The number of operations that wait for an ack. */
  get unanswered(): number {
    return this.#queued.size + this.#inFlight.size;
  }

  find(ref: string): OutboxEntry | undefined {
    return this.#entries.get(ref);
  }

  /**
   * Append an operation. Adding the same operation again has no effect.
   *
   * @throws {@link ChatError} `conflict`: the ref belongs to another operation; `overloaded`: the
   * outbox is full of operations that are not stored yet.
   */
  put(entry: OutboxEntry): void {
    const known = this.#entries.get(entry.ref);
    if (known !== undefined) {
      if (!isEqual(known.fields, entry.fields)) {
        throw new ChatError("conflict", `ref: ${entry.ref} is already used for another request`);
      }
      return;
    }
    if (this.#entries.size >= this.#entriesMax) {
      const text = `${this.#entriesMax} sends are waiting to be stored; try again later`;
      throw new ChatError("overloaded", text);
    }
    this.#lastNumber += 1;
    entry.number = this.#lastNumber;
    this.#entries.set(entry.ref, entry);
    if (entry.stage === "acked") {
      this.#addAcked(entry);
      this.#setProbe(entry, 0);
    } else {
      entry.stage = "queued";
      this.#queued.set(entry.ref, entry);
    }
  }

  /** Return the operations to send now, in order, and mark them as in flight. */
  nextSends(nowS: number, inFlightMax: number): OutboxEntry[] {
    const room = inFlightMax - this.#inFlight.size;
    const held = new Set<string>();
    const sends: OutboxEntry[] = [];
    for (const entry of this.#queued.values()) {
      if (sends.length >= room) break;
      if (entry.notBeforeS > nowS) held.add(entry.chat);
      else if (!held.has(entry.chat)) sends.push(entry);
    }
    for (const entry of sends) this.#move(entry, "inFlight");
    return sends;
  }

  /** Record an ack; return the operation if this is its first ack. */
  recordAck(ref: string, position: Position, nowS: number, isStored: boolean): OutboxEntry | null {
    const entry = this.#entries.get(ref);
    if (entry === undefined) return null;
    entry.seq = position.seq;
    entry.ts = position.ts;
    entry.mid = position.mid;
    const isFirst = !entry.isReported;
    entry.isReported = true;
    if (isStored) {
      // Earlier acked operations stay: they may be lost, or acked in an earlier inbox epoch.
      this.drop(ref);
    } else if (entry.stage !== "acked") {
      this.#move(entry, "acked");
      if (!this.#probes.has(probeKey(entry))) this.#setProbe(entry, nowS + PROBE_S);
    }
    return isFirst ? entry : null;
  }

  /** Postpone an operation that was refused temporarily. */
  postpone(ref: string, untilS: number): void {
    const entry = this.#entries.get(ref);
    if (entry?.stage === "inFlight") {
      entry.notBeforeS = untilS;
      this.#requeue([entry]);
    }
  }

  drop(ref: string): void {
    const entry = this.#entries.get(ref);
    if (entry === undefined) return;
    this.#entries.delete(ref);
    this.#removeFromStage(entry);
  }

  /** Remove the operations in `chat` up to seq `upto`: the server has stored them. */
  recordStored(chat: string, upto: number, nowS: number): void {
    const acked = this.#acked.get(chat);
    if (acked === undefined) return;
    const probe = this.#probes.get(keyOf(chat, ""));
    if (probe !== undefined) probe.atS = nowS + PROBE_S;
    for (const entry of [...acked.values()]) {
      if (entry.seq <= upto && !isHide(entry)) this.drop(entry.ref);
    }
  }

  /** Requeue the operations that were not answered. */
  disconnected(): void {
    this.#requeue([...this.#inFlight.values()]);
  }

  /** Requeue the operations that were committed but not stored, because they may be lost. */
  requeueAcked(): void {
    const acked = [...this.#acked.values()].flatMap((entries) => [...entries.values()]);
    for (const entry of acked) entry.notBeforeS = 0;
    this.#requeue(acked);
  }

  #requeue(entries: OutboxEntry[]): void {
    for (const entry of entries) this.#move(entry, "queued");
    // Requeued operations were added before the waiting ones.
    const queued = [...this.#queued.values()].sort((a, b) => a.number - b.number);
    this.#queued = new Map(queued.map((entry) => [entry.ref, entry]));
  }

  #move(entry: OutboxEntry, stage: Stage): void {
    this.#removeFromStage(entry);
    entry.stage = stage;
    if (stage === "queued") this.#queued.set(entry.ref, entry);
    else if (stage === "inFlight") this.#inFlight.set(entry.ref, entry);
    else this.#addAcked(entry);
  }

  #addAcked(entry: OutboxEntry): void {
    const acked = this.#acked.get(entry.chat);
    if (acked === undefined) this.#acked.set(entry.chat, new Map([[entry.ref, entry]]));
    else acked.set(entry.ref, entry);
  }

  #removeFromStage(entry: OutboxEntry): void {
    this.#queued.delete(entry.ref);
    this.#inFlight.delete(entry.ref);
    this.#probes.delete(keyOf(entry.chat, entry.ref));
    const acked = this.#acked.get(entry.chat);
    if (acked === undefined) return;
    acked.delete(entry.ref);
    if ([...acked.values()].every(isHide)) this.#probes.delete(keyOf(entry.chat, ""));
    if (acked.size === 0) this.#acked.delete(entry.chat);
  }

  /** Return `{chat: newest seq}` of the acked operations, most recent chat first. */
  unstored(chatsMax: number): Record<string, number> {
    const newest: Record<string, number> = {};
    let count = 0;
    for (const [chat, entries] of [...this.#acked].reverse()) {
      const seqs = [...entries.values()].filter((entry) => !isHide(entry)).map(({ seq }) => seq);
      if (seqs.length > 0 && count < chatsMax) {
        newest[chat] = Math.max(...seqs);
        count += 1;
      }
    }
    return newest;
  }

  /** Postpone the probes of chats for which `hello` already requests a `stored` frame. */
  postponeProbes(chats: Iterable<string>, nowS: number): void {
    for (const chat of chats) {
      const probe = this.#probes.get(keyOf(chat, ""));
      if (probe !== undefined) probe.atS = nowS + PROBE_S;
    }
  }

  // probes of the stored state

  /**
   * Return an acked operation to send again, because its `stored` frame may have been lost.
   *
   * A retry with the same ref changes nothing. After the retry, the server sends `stored` again;
   * for a deletion only for the user, the ack itself reports whether it is stored.
   */
  nextProbe(nowS: number): OutboxEntry | null {
    for (const probe of this.#probes.values()) {
      if (probe.atS > nowS) continue;
      probe.atS = nowS + PROBE_AGAIN_S;
      const acked = this.#acked.get(probe.chat) ?? new Map<string, OutboxEntry>();
      if (probe.ref) return acked.get(probe.ref) ?? null;
      const others = [...acked.values()].filter((entry) => !isHide(entry));
      return others.reduce((a, b) => (b.seq > a.seq ? b : a));
    }
    return null;
  }

  /** Return the operations of a chat that were acked but not confirmed as stored. */
  listAcked(chat: string): OutboxEntry[] {
    return [...(this.#acked.get(chat)?.values() ?? [])];
  }

  /** Schedule probes for all acked operations of a chat, unless `stored` arrives first. */
  scheduleProbes(chat: string, nowS: number): void {
    for (const entry of this.listAcked(chat)) this.#setProbe(entry, nowS + PROBE_S);
  }

  /** Stop probing an operation that the server has refused permanently. */
  stopProbing(ref: string): void {
    const entry = this.#entries.get(ref);
    if (entry !== undefined) this.#probes.delete(probeKey(entry));
  }

  /** Return the times at which postponed operations and probes are due. */
  times(): number[] {
    const waits = [...this.#queued.values()].map(({ notBeforeS }) => notBeforeS);
    const postponed = waits.filter((at) => at > 0);
    return [...postponed, ...[...this.#probes.values()].map(({ atS }) => atS)];
  }

  #setProbe(entry: OutboxEntry, atS: number): void {
    const key = probeKey(entry);
    const known = this.#probes.get(key);
    if (known !== undefined) known.atS = atS;
    else this.#probes.set(key, { chat: entry.chat, ref: isHide(entry) ? entry.ref : "", atS });
  }
}

function probeKey(entry: OutboxEntry): string {
  return keyOf(entry.chat, isHide(entry) ? entry.ref : "");
}

function keyOf(chat: string, ref: string): string {
  return `${chat} ${ref}`;
}
