// Views of `ClientState` for user interfaces: objects are the same until they change.

import type { ChatState } from "../state/chat.js";
import type { ClientState } from "../state/client_state.js";
import { type Entry, isEqual } from "../state/model.js";
import type { ChatDescription, PendingOperation } from "./backend.js";
import { MessageLists } from "./message_lists.js";

/** Reads the chats of a state. After each input of the state, call `popTouched`. */
export class StateView {
  readonly #state: ClientState;
  readonly #descriptions = new Map<string, ChatDescription>();
  readonly #outdated = new Set<string>(); // chats whose description may have changed
  readonly #lists = new MessageLists();

  constructor(state: ClientState) {
    this.#state = state;
  }

  /** Return the chats that changed since the last call, and invalidate their views. */
  popTouched(): ReadonlySet<string> {
    const touched = new Set(this.#state.touched);
    this.#state.touched.clear();
    for (const chat of touched) this.#outdated.add(chat);
    this.#lists.invalidate(touched);
    return touched;
  }

  listChats(): string[] {
    return [...this.#state.chats.keys()];
  }

  describe(chat: string): ChatDescription | null {
    const state = this.#state.chats.get(chat);
    if (state === undefined) {
      this.#descriptions.delete(chat);
      this.#outdated.delete(chat);
      return null;
    }
    const before = this.#descriptions.get(chat);
    if (before !== undefined && !this.#outdated.delete(chat)) return before;
    const description = buildDescription(state);
    if (before !== undefined && isEqual(before, description)) return before;
    this.#descriptions.set(chat, description);
    return description;
  }

  messages(chat: string): readonly Entry[] {
    const nowS = Date.now() / 1000;
    const load = (): Entry[] => this.#state.chats.get(chat)?.log.messages(nowS) ?? [];
    return this.#lists.get(chat, nowS, load);
  }

  pending(chat: string): PendingOperation[] {
    return [...this.#state.outbox]
      .filter((entry) => entry.chat === chat)
      .map(({ ref, fields, stage, seq }) => ({ ref, chat, fields, stage, seq }));
  }
}

function buildDescription(chat: ChatState): ChatDescription {
  const { id, peer, isLeft, isComplete, log, muted } = chat;
  const [fromList, fromLog] = [chat.last, log.findNewestMessage()];
  const isLogNewer = fromLog !== null && fromLog.seq >= (fromList?.seq ?? 0);
  const last = isLogNewer ? fromLog : fromList;
  const state = { id, peer, last, isLeft, isComplete, muted: { ...muted }, shown: log.shown };
  return { ...chat.save(), ...state };
}
