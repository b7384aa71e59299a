// Streamed AI responses: pieces of a response, assembled in order.
//
// Pieces may be lost, and a device may connect during a response. If an `index` is missing, the
// client requests the text so far (`join_turn`). After a worker crash, the response starts again
// under a later `turn` (response id); pieces of the earlier `turn` are ignored.
//
// Invariant: the text delivered for a response is always a prefix of the full text, without a gap.
// Bounds: `ANSWERS_MAX` responses; `HELD_MAX` pieces of each that wait for an earlier piece.

import type { AiSignal, Turn } from "../generated/frames.js";
import type { Ask, Emit } from "./catch_up.js";

const ANSWERS_MAX = 100;
const HELD_MAX = 500;

/** An AI response in progress. `index` is the index of the last delivered piece. */
interface Answer {
  readonly turn: string;
  readonly seq: number;
  index: number;
  text: string;
  isOver: boolean;
  isAsking: boolean;
  /** Text, end and tool of the pieces that wait for an earlier one. */
  held: Map<number, [string, string, string]>;
}

/** The AI responses in progress in all chats. */
export class CompanionResponses {
  readonly #ask: Ask;
  readonly #emit: Emit;
  readonly #answers = new Map<string, Answer>();

  constructor(ask: Ask, emit: Emit) {
    this.#ask = ask;
    this.#emit = emit;
  }

  /** Handle a piece of a response. */
  signalled(frame: AiSignal, nowS: number): void {
    const { chat } = frame;
    const answer = this.#find(chat, frame.turn, frame.seq);
    if (answer === null || answer.isOver) return;
    if (answer.held.size < HELD_MAX && frame.index > answer.index) {
      answer.held.set(frame.index, [frame.text, frame.end ?? "", frame.tool ?? ""]);
    }
    this.#deliverHeld(chat, answer);
    if (answer.held.size > 0) this.join(chat, nowS);
  }

  /** Return or create the response with id `turn`; null if the chat has a later response. */
  #find(chat: string, turn: string, seq: number): Answer | null {
    const known = this.#answers.get(chat);
    if (known !== undefined && turn <= known.turn) return turn < known.turn ? null : known;
    if (this.#answers.size >= ANSWERS_MAX) {
      const [oldest] = this.#answers.keys();
      if (oldest !== undefined) this.#answers.delete(oldest);
    }
    this.#answers.delete(chat);
    const start = { index: -1, text: "", isOver: false, isAsking: false };
    const answer: Answer = { turn, seq, ...start, held: new Map() };
    this.#answers.set(chat, answer);
    return answer;
  }

  /** Deliver the pieces that continue the delivered text. */
  #deliverHeld(chat: string, answer: Answer): void {
    for (;;) {
      const piece = answer.held.get(answer.index + 1);
      if (answer.isOver || piece === undefined) break;
      answer.index += 1;
      answer.held.delete(answer.index);
      const [added, end, tool] = piece;
      answer.text += added;
      answer.isOver = end !== "";
      this.#reportProgress(chat, answer, added, end, tool);
    }
    if (answer.isOver) answer.held.clear();
  }

  #reportProgress(chat: string, answer: Answer, added: string, end: string, tool = ""): void {
    const { seq, turn, text } = answer;
    this.#emit([{ type: "answerGrew", chat, seq, turn, added, text, end, tool }]);
  }

  /** Request the text of the response in `chat` so far. */
  join(chat: string, nowS: number): void {
    const known = this.#answers.get(chat);
    if (known !== undefined) {
      if (known.isAsking) return;
      known.isAsking = true;
    }
    const over = (): void => {
      if (known !== undefined) known.isAsking = false;
    };
    this.#ask(
      { type: "join_turn", chat },
      (frame) => {
        over();
        this.joined(frame as unknown as Turn);
      },
      over,
      nowS,
    );
  }

  /** Apply the answer to `join`. */
  joined(frame: Turn): void {
    const { chat, turn, index } = frame;
    const answer = turn ? this.#find(chat, turn, frame.seq) : null;
    if (answer === null || answer.isOver || index <= answer.index) return;
    const added = frame.text.slice(answer.text.length);
    answer.text = frame.text;
    answer.index = index;
    const end = frame.end ?? "";
    answer.isOver = end !== "";
    answer.held = new Map([...answer.held].filter(([place]) => place > index));
    this.#reportProgress(chat, answer, added, end);
    this.#deliverHeld(chat, answer);
  }

  /** Request the text that was missed while disconnected. */
  reconnected(nowS: number): void {
    for (const [chat, answer] of [...this.#answers]) {
      answer.isAsking = false;
      if (!answer.isOver) this.join(chat, nowS);
    }
  }
}
