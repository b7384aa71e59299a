// Sends the operations of the outbox, probes whether they are stored, and handles the answers.

import type * as frames from "../generated/frames.js";
import type { Emit } from "./catch_up.js";
import type { ChatState } from "./chat.js";
import { errorOf, type ChatError } from "./errors.js";
import { isSessionChat, type Fields } from "./model.js";
import type { Outbox, OutboxEntry, Position } from "./outbox.js";
import type { Requests } from "./requests.js";

const RETRY_S = 1;
const COMPANION_RETRY_S_MAX = 60;
const PROBES_MAX = 4; // concurrent probes: each may wait seconds for the warm tier
const IN_FLIGHT_MAX = 64; // unless the server has another limit

/** The operations of one device on its current connection. */
export class Operations {
  readonly #outbox: Outbox;
  readonly #requests: Requests;
  readonly #chats: ReadonlyMap<string, ChatState>;
  readonly #emit: Emit;
  readonly #refs = new Map<number, string>(); // request number of an operation → ref
  readonly #probes = new Set<number>();

  constructor(
    outbox: Outbox,
    requests: Requests,
    chats: ReadonlyMap<string, ChatState>,
    emit: Emit,
  ) {
    this.#outbox = outbox;
    this.#requests = requests;
    this.#chats = chats;
    this.#emit = emit;
  }

  /** Return the frames of the operations and probes that are due. */
  nextFrames(nowS: number, limits: Partial<frames.Limits>): Fields[] {
    const found: Fields[] = [];
    const room = (limits.sends_in_flight_max ?? IN_FLIGHT_MAX) - this.#probes.size;
    for (const entry of this.#outbox.nextSends(nowS, room)) {
      found.push({ ...entry.fields, id: this.#assignNumber(entry.ref) });
    }
    while (this.#probes.size < PROBES_MAX) {
      const probe = this.#outbox.nextProbe(nowS);
      if (probe === null) break;
      const id = this.#assignNumber(probe.ref);
      this.#probes.add(id);
      found.push({ ...probe.fields, id });
    }
    return found;
  }

  #assignNumber(ref: string): number {
    const number = this.#requests.nextId();
    this.#refs.set(number, ref);
    return number;
  }

  /** Requeue what was not answered. */
  disconnected(): void {
    this.#refs.clear();
    this.#probes.clear();
    this.#outbox.disconnected();
  }

  /** Handle an ack. */
  handleAck(frame: frames.Ack, nowS: number): void {
    this.#refs.delete(frame.id);
    this.#probes.delete(frame.id);
    this.deliverAck(frame.ref, frame, nowS, frame.dup, frame.durability);
  }

  /** Record that an operation is committed, and deliver its first ack. */
  deliverAck(
    ref: string,
    position: Position,
    nowS: number,
    dup: boolean,
    durability: string,
  ): void {
    const entry = this.#outbox.recordAck(ref, position, nowS, durability === "stored");
    if (entry === null) return;
    const { seq, ts, mid } = position;
    this.#emit([{ type: "acked", ref, chat: entry.chat, seq, ts, mid, dup, durability }]);
  }

  /** Handle the error of an operation or of a probe; return false if it belongs to neither. */
  handleError(frame: frames.Error, nowS: number): boolean {
    const number = frame.id ?? -1;
    const ref = this.#refs.get(number);
    if (ref === undefined) return false;
    this.#refs.delete(number);
    const error = errorOf(frame);
    const entry = this.#outbox.find(ref);
    if (this.#probes.delete(number)) {
      if (entry !== undefined && !error.isTemporary) this.#endProbe(entry, error);
    } else if (error.isTemporary && !isTooLate(entry, error)) {
      this.#outbox.postpone(ref, nowS + (error.retryAfterMs || RETRY_S * 1000) / 1000);
    } else if (entry !== undefined) {
      this.#outbox.drop(ref);
      this.#emit([{ type: "refused", ref, chat: entry.chat, error }]);
    }
    return true;
  }

  /** Handle a permanently refused probe; whether the operation is stored remains unknown. */
  #endProbe(entry: OutboxEntry, error: ChatError): void {
    if (this.#chats.get(entry.chat)?.isLeft !== true) {
      this.#outbox.stopProbing(entry.ref); // it is sent again in a new epoch
      return;
    }
    for (const { ref, chat } of this.#outbox.listAcked(entry.chat)) {
      this.#outbox.drop(ref);
      this.#emit([{ type: "refused", ref, chat, error }]);
    }
  }
}

/** Return whether an operation is for an AI companion and its retry would be too late. */
function isTooLate(entry: OutboxEntry | undefined, error: ChatError): boolean {
  const isForCompanion = entry !== undefined && isSessionChat(entry.chat);
  return isForCompanion && (error.retryAfterMs ?? 0) > COMPANION_RETRY_S_MAX * 1000;
}
