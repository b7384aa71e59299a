// Outbox: operations that the server must store (sends, edits, deletions, reactions).
//
// Each operation has a `ref`; retries with the same ref take effect once. An operation stays in the
// outbox until the server confirms that it is stored. In a new epoch, operations that were only
// acked are sent again.
//
//   queued → inFlight → acked → removed (stored)
//     ↑__________|________|     connection lost; new epoch

import { ChatError } from "./errors.js";
import { type Fields, isEqual } from "./model.js";

/** Wait for a `stored` frame after an ack, before a probe is sent. */
export const PROBE_DELAY_S = 5;
const PROBE_INTERVAL_S = 20;

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
export function createOutboxEntry(ref: string, chat: string, fields: Fields): OutboxEntry {
  const start = { seq: 0, ts: 0, mid: "", isReported: false, notBeforeS: 0, number: 0 };
  return { ref, chat, fields, stage: "queued", ...start };
}

/** Return whether an operation deletes a message only for the user; it gets no `stored` frame. */
export function isDeleteForMe(entry: OutboxEntry): boolean {
  return entry.fields.type === "delete" && entry.fields["for"] === "me";
}

/** Return whether the application waits until the operation is stored. */
export function isStoredRequired(entry: OutboxEntry): boolean {
  return entry.fields["durability"] === "stored";
}

interface Probe {
  chat: string;
  ref: string; // empty: the probe is for the whole chat
  dueS: number;
}

/** The operations of one device, in order. */
export class Outbox {
  readonly #entriesMax: number;
  readonly #entries = new Map<string, OutboxEntry>();
  // The same operations by stage: the cost of a step does not depend on the size of the outbox.
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
    const existing = this.#entries.get(entry.ref);
    if (existing !== undefined) {
      if (!isEqual(existing.fields, entry.fields)) {
        throw new ChatError("conflict", `ref: ${entry.ref} is already used by another operation`);
      }
      return;
    }
    if (this.#entries.size >= this.#entriesMax) {
      const text = `${this.#entriesMax} operations are not stored yet; try again later`;
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
    const postponedChats = new Set<string>();
    const sends: OutboxEntry[] = [];
    for (const entry of this.#queued.values()) {
      if (sends.length >= room) break;
      if (entry.notBeforeS > nowS) postponedChats.add(entry.chat);
      else if (!postponedChats.has(entry.chat)) sends.push(entry);
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
      // Earlier acked operations stay: they may be lost, or were acked in an earlier inbox epoch.
      this.drop(ref);
    } else if (entry.stage !== "acked") {
      this.#move(entry, "acked");
      if (!this.#probes.has(getProbeKey(entry))) this.#setProbe(entry, nowS + PROBE_DELAY_S);
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
    const probe = this.#probes.get(buildKey(chat, ""));
    if (probe !== undefined) probe.dueS = nowS + PROBE_DELAY_S;
    for (const entry of [...acked.values()]) {
      if (entry.seq <= upto && !isDeleteForMe(entry)) this.drop(entry.ref);
    }
  }

  /** Requeue the operations in flight. */
  handleDisconnect(): void {
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
    // Requeued operations are older than those that were never sent.
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
    this.#probes.delete(buildKey(entry.chat, entry.ref));
    const acked = this.#acked.get(entry.chat);
    if (acked === undefined) return;
    acked.delete(entry.ref);
    if ([...acked.values()].every(isDeleteForMe)) this.#probes.delete(buildKey(entry.chat, ""));
    if (acked.size === 0) this.#acked.delete(entry.chat);
  }

  /** Return `{chat: newest seq}` of the acked operations, most recent chat first. */
  getUnstored(chatsMax: number): Record<string, number> {
    const newest: Record<string, number> = {};
    let count = 0;
    for (const [chat, entries] of [...this.#acked].reverse()) {
      const confirmed = [...entries.values()].filter((entry) => !isDeleteForMe(entry));
      const seqs = confirmed.map(({ seq }) => seq);
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
      const probe = this.#probes.get(buildKey(chat, ""));
      if (probe !== undefined) probe.dueS = nowS + PROBE_DELAY_S;
    }
  }

  // probes: retries that check whether an acked operation is stored

  /**
   * Return an acked operation to send again, because its `stored` frame may have been lost.
   *
   * A retry with the same ref changes nothing. After the retry, the server sends `stored` again;
   * for a deletion only for the user, the ack itself reports whether it is stored.
   */
  nextProbe(nowS: number): OutboxEntry | null {
    for (const probe of this.#probes.values()) {
      if (probe.dueS > nowS) continue;
      probe.dueS = nowS + PROBE_INTERVAL_S;
      const acked = this.#acked.get(probe.chat) ?? new Map<string, OutboxEntry>();
      if (probe.ref) return acked.get(probe.ref) ?? null;
      const probed = [...acked.values()].filter((entry) => !isDeleteForMe(entry));
      return probed.reduce((a, b) => (b.seq > a.seq ? b : a));
    }
    return null;
  }

  /** Return the operations of a chat that were acked but not confirmed as stored. */
  listAcked(chat: string): OutboxEntry[] {
    return [...(this.#acked.get(chat)?.values() ?? [])];
  }

  /** Schedule probes for all acked operations of a chat, unless `stored` arrives first. */
  scheduleProbes(chat: string, nowS: number): void {
    for (const entry of this.listAcked(chat)) this.#setProbe(entry, nowS + PROBE_DELAY_S);
  }

  /** Stop probing an operation that the server has refused permanently. */
  stopProbing(ref: string): void {
    const entry = this.#entries.get(ref);
    if (entry !== undefined) this.#probes.delete(getProbeKey(entry));
  }

  /** Return the times at which postponed operations and probes are due. */
  listDueTimes(): number[] {
    const waits = [...this.#queued.values()].map(({ notBeforeS }) => notBeforeS);
    const postponed = waits.filter((dueS) => dueS > 0);
    return [...postponed, ...[...this.#probes.values()].map(({ dueS }) => dueS)];
  }

  #setProbe(entry: OutboxEntry, dueS: number): void {
    const key = getProbeKey(entry);
    const existing = this.#probes.get(key);
    if (existing !== undefined) existing.dueS = dueS;
    else {
      const ref = isDeleteForMe(entry) ? entry.ref : "";
      this.#probes.set(key, { chat: entry.chat, ref, dueS });
    }
  }
}

function getProbeKey(entry: OutboxEntry): string {
  return buildKey(entry.chat, isDeleteForMe(entry) ? entry.ref : "");
}

function buildKey(chat: string, ref: string): string {
  return `${chat} ${ref}`;
}
