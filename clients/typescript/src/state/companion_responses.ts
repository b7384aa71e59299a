// Streamed AI responses: pieces of a response, assembled in order.
//
// Pieces may be lost, and a device may connect during a response. If an `index` is missing, the
// client requests the text so far (`join_turn`). After a worker crash, the response starts again
// under a later `turn` (response id); pieces of the earlier `turn` are ignored.
//
// Invariant: the text delivered for a response is always a prefix of the full text, without a gap.
// Bounds: `RESPONSES_MAX` responses; `PENDING_MAX` pieces of each that wait for an earlier piece.

import type { AiSignal, ResponseText } from "../generated/frames.js";
import type { Emit, SendRequest } from "./catch_up.js";

const RESPONSES_MAX = 100;
const PENDING_MAX = 500;

/** An AI response in progress. `index` is the index of the last delivered piece. */
interface ResponseState {
  readonly turn: string;
  readonly seq: number;
  index: number;
  text: string;
  hasEnded: boolean;
  isRequested: boolean;
  /** Index → text, end and tool, of the pieces that wait for an earlier piece. */
  pending: Map<number, [string, string, string]>;
}

/** The AI responses in progress in all chats. */
export class CompanionResponses {
  readonly #sendRequest: SendRequest;
  readonly #emit: Emit;
  readonly #responses = new Map<string, ResponseState>();

  constructor(sendRequest: SendRequest, emit: Emit) {
    this.#sendRequest = sendRequest;
    this.#emit = emit;
  }

  /** Handle a piece of a response. */
  handleSignal(frame: AiSignal, nowS: number): void {
    const { chat } = frame;
    const response = this.#findOrCreate(chat, frame.turn, frame.seq);
    if (response === null || response.hasEnded) return;
    if (response.pending.size < PENDING_MAX && frame.index > response.index) {
      response.pending.set(frame.index, [frame.text, frame.end ?? "", frame.tool ?? ""]);
    }
    this.#deliverPending(chat, response);
    if (response.pending.size > 0) this.requestText(chat, nowS);
  }

  /** Return or create the response with id `turn`; null if the chat has a later response. */
  #findOrCreate(chat: string, turn: string, seq: number): ResponseState | null {
    const existing = this.#responses.get(chat);
    if (existing !== undefined && turn < existing.turn) return null;
    if (existing !== undefined && turn === existing.turn) return existing;
    if (this.#responses.size >= RESPONSES_MAX) {
      const [oldest] = this.#responses.keys();
      if (oldest !== undefined) this.#responses.delete(oldest);
    }
    this.#responses.delete(chat);
    const start = { index: -1, text: "", hasEnded: false, isRequested: false };
    const response: ResponseState = { turn, seq, ...start, pending: new Map() };
    this.#responses.set(chat, response);
    return response;
  }

  /** Deliver the pieces that continue the delivered text. */
  #deliverPending(chat: string, response: ResponseState): void {
    for (;;) {
      const piece = response.pending.get(response.index + 1);
      if (response.hasEnded || piece === undefined) break;
      response.index += 1;
      response.pending.delete(response.index);
      const [added, end, tool] = piece;
      response.text += added;
      response.hasEnded = end !== "";
      this.#reportProgress(chat, response, added, end, tool);
    }
    if (response.hasEnded) response.pending.clear();
  }

  #reportProgress(
    chat: string,
    response: ResponseState,
    added: string,
    end: string,
    tool = "",
  ): void {
    const { seq, turn, text } = response;
    this.#emit([{ type: "responseUpdated", chat, seq, turn, added, text, end, tool }]);
  }

  /** Request the text of the response in `chat` so far. */
  requestText(chat: string, nowS: number): void {
    const existing = this.#responses.get(chat);
    if (existing !== undefined) {
      if (existing.isRequested) return;
      existing.isRequested = true;
    }
    const finish = (): void => {
      if (existing !== undefined) existing.isRequested = false;
    };
    this.#sendRequest(
      { type: "join_turn", chat },
      (frame) => {
        finish();
        this.applyText(frame as unknown as ResponseText);
      },
      finish,
      nowS,
    );
  }

  /** Apply the response to `requestText`. */
  applyText(frame: ResponseText): void {
    const { chat, turn, index } = frame;
    const response = turn ? this.#findOrCreate(chat, turn, frame.seq) : null;
    if (response === null || response.hasEnded || index <= response.index) return;
    const added = frame.text.slice(response.text.length);
    response.text = frame.text;
    response.index = index;
    const end = frame.end ?? "";
    response.hasEnded = end !== "";
    response.pending = new Map([...response.pending].filter(([position]) => position > index));
    this.#reportProgress(chat, response, added, end);
    this.#deliverPending(chat, response);
  }

  /** Request the text that was missed while disconnected. */
  handleReconnect(nowS: number): void {
    for (const [chat, response] of [...this.#responses]) {
      response.isRequested = false;
      if (!response.hasEnded) this.requestText(chat, nowS);
    }
  }
}
