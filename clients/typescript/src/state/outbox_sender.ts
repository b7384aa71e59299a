// Sends the operations of the outbox, checks whether they are stored, and handles the responses.

import type * as wire from "../generated/frames.js";
import type { Emit } from "./catch_up.js";
import type { ChatState } from "./chat.js";
import { type ChatError, parseError } from "./errors.js";
import { type Fields, isSessionChat } from "./model.js";
import { isDeleteForMe, type Outbox, type OutboxEntry, type Position } from "./outbox.js";
import type { Requests } from "./request_queue.js";

const RETRY_S = 1;
const COMPANION_RETRY_S_MAX = 60; // after a longer wait, the message is refused
const PROBES_MAX = 4; // in flight: a probe may wait seconds for DynamoDB
const IN_FLIGHT_MAX = 64; // unless the server has another limit

/** The operations of one device on its current connection. */
export class OutboxSender {
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

  /** Append an operation, with the ref of the message that it changes. See `Outbox.put`. */
  put(entry: OutboxEntry): void {
    const targetRef = this.#findTargetRef(entry);
    const fields = targetRef ? { ...entry.fields, target_ref: targetRef } : entry.fields;
    this.#outbox.put({ ...entry, fields });
  }

  /**
   * Return the ref of the message that an operation changes, if it is known.
   *
   * If the server loses the message, the operation must not change another one with its seq.
   */
  #findTargetRef({ ref, chat, fields }: OutboxEntry): unknown {
    const known = this.#outbox.find(ref);
    if (known !== undefined) return known.fields["target_ref"];
    const { seq } = fields;
    if (typeof seq !== "number") return undefined;
    const acked = this.#outbox.listAcked(chat).find((own) => own.seq === seq);
    return this.#chats.get(chat)?.log.findRef(seq) ?? acked?.ref;
  }

  /** Return the frames of the operations and probes that are due. */
  nextFrames(nowS: number, limits: Partial<wire.Limits>): Fields[] {
    const frames: Fields[] = [];
    const room = (limits.sends_in_flight_max ?? IN_FLIGHT_MAX) - this.#probes.size;
    for (const entry of this.#outbox.nextSends(nowS, room)) {
      frames.push({ ...entry.fields, id: this.#assignNumber(entry.ref) });
    }
    while (this.#probes.size < PROBES_MAX) {
      const probe = this.#outbox.nextProbe(nowS);
      if (probe === null) break;
      const id = this.#assignNumber(probe.ref);
      this.#probes.add(id);
      frames.push({ ...probe.fields, id });
    }
    return frames;
  }

  #assignNumber(ref: string): number {
    const number = this.#requests.nextId();
    this.#refs.set(number, ref);
    return number;
  }

  /** Requeue the operations in flight. */
  handleDisconnect(): void {
    this.#refs.clear();
    this.#probes.clear();
    this.#outbox.handleDisconnect();
  }

  /** Handle an ack. */
  handleAck(frame: wire.Ack, nowS: number): void {
    this.#refs.delete(frame.id);
    this.#probes.delete(frame.id);
    this.recordCommit(frame.ref, frame, nowS, frame.dup, frame.durability);
  }

  /** Record that an operation is committed, and deliver its first ack. */
  recordCommit(
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

  /** Handle the error of an operation or a probe; return false if it belongs to neither. */
  handleError(frame: wire.Error, nowS: number): boolean {
    const number = frame.id ?? -1;
    const ref = this.#refs.get(number);
    if (ref === undefined) return false;
    this.#refs.delete(number);
    const error = parseError(frame);
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

  /** Handle a permanently refused probe: it is unknown whether the operation is stored. */
  #endProbe(entry: OutboxEntry, error: ChatError): void {
    if (this.#chats.get(entry.chat)?.isLeft !== true) {
      // While an invitation takes effect, the server does not find the chat. Only another probe
      // confirms a deletion for this user; for other operations, `stored` follows.
      if (!isDeleteForMe(entry) || error.code !== "not_found") {
        this.#outbox.stopProbing(entry.ref); // it is sent again in a new epoch
      }
      return;
    }
    for (const { ref, chat } of this.#outbox.listAcked(entry.chat)) {
      this.#outbox.drop(ref);
      this.#emit([{ type: "refused", ref, chat, error }]);
    }
  }
}

/** Return whether an operation is for an AI companion and must wait too long for its retry. */
function isTooLate(entry: OutboxEntry | undefined, error: ChatError): boolean {
  const isForCompanion = entry !== undefined && isSessionChat(entry.chat);
  return isForCompanion && (error.retryAfterMs ?? 0) > COMPANION_RETRY_S_MAX * 1000;
}
