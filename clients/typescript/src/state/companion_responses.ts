// Streamed AI responses: pieces of a response, assembled in order.
//
// Pieces may be lost, and a device may connect during a response. If an `index` is missing, the
// client requests the text so far (`join_turn`). After a worker crash, the response starts again
// under a later `turn` (response id); pieces of the earlier `turn` are ignored.
//
// Invariant: the text delivered for a response is always a prefix of the full text, without a gap.
// Bounds: `RESPONSES_MAX` responses; `HELD_MAX` pieces of each that wait for an earlier piece.

import type { AiSignal, Turn } from "../generated/frames.js";
import type { Emit, SendRequest } from "./catch_up.js";

const RESPONSES_MAX = 100;
const HELD_MAX = 500;

/** An AI response in progress. `index` is the index of the last delivered piece. */
interface ResponseState {
  readonly turn: string;
  readonly seq: number;
  index: number;
  text: string;
  isOver: boolean;
  isRequested: boolean;
  /** Text, end and tool of the pieces that wait for an earlier one. */
  held: Map<number, [string, string, string]>;
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
    const response = this.#find(chat, frame.turn, frame.seq);
    if (response === null || response.isOver) return;
    if (response.held.size < HELD_MAX && frame.index > response.index) {
      response.held.set(frame.index, [frame.text, frame.end ?? "", frame.tool ?? ""]);
    }
    this.#deliverHeld(chat, response);
    if (response.held.size > 0) this.requestText(chat, nowS);
  }

  /** Return or create the response with id `turn`; null if the chat has a later response. */
  #find(chat: string, turn: string, seq: number): ResponseState | null {
    const known = this.#responses.get(chat);
    if (known !== undefined && turn <= known.turn) return turn < known.turn ? null : known;
    if (this.#responses.size >= RESPONSES_MAX) {
      const [oldest] = this.#responses.keys();
      if (oldest !== undefined) this.#responses.delete(oldest);
    }
    this.#responses.delete(chat);
    const start = { index: -1, text: "", isOver: false, isRequested: false };
    const response: ResponseState = { turn, seq, ...start, held: new Map() };
    this.#responses.set(chat, response);
    return response;
  }

  /** Deliver the pieces that continue the delivered text. */
  #deliverHeld(chat: string, response: ResponseState): void {
    for (;;) {
      const piece = response.held.get(response.index + 1);
      if (response.isOver || piece === undefined) break;
      response.index += 1;
      response.held.delete(response.index);
      const [added, end, tool] = piece;
      response.text += added;
      response.isOver = end !== "";
      this.#reportProgress(chat, response, added, end, tool);
    }
    if (response.isOver) response.held.clear();
  }

  #reportProgress(
    chat: string,
    response: ResponseState,
    added: string,
    end: string,
    tool = "",
  ): void {
    const { seq, turn, text } = response;
    this.#emit([{ type: "answerGrew", chat, seq, turn, added, text, end, tool }]);
  }

  /** Request the text of the response in `chat` so far. */
  requestText(chat: string, nowS: number): void {
    const known = this.#responses.get(chat);
    if (known !== undefined) {
      if (known.isRequested) return;
      known.isRequested = true;
    }
    const finish = (): void => {
      if (known !== undefined) known.isRequested = false;
    };
    this.#sendRequest(
      { type: "join_turn", chat },
      (frame) => {
        finish();
        this.applyTurn(frame as unknown as Turn);
      },
      finish,
      nowS,
    );
  }

  /** Apply the response to `requestText`. */
  applyTurn(frame: Turn): void {
    const { chat, turn, index } = frame;
    const response = turn ? this.#find(chat, turn, frame.seq) : null;
    if (response === null || response.isOver || index <= response.index) return;
    const added = frame.text.slice(response.text.length);
    response.text = frame.text;
    response.index = index;
    const end = frame.end ?? "";
    response.isOver = end !== "";
    response.held = new Map([...response.held].filter(([place]) => place > index));
    this.#reportProgress(chat, response, added, end);
    this.#deliverHeld(chat, response);
  }

  /** Request the text that was missed while disconnected. */
  reconnected(nowS: number): void {
    for (const [chat, response] of [...this.#responses]) {
      response.isRequested = false;
      if (!response.isOver) this.requestText(chat, nowS);
    }
  }
}
