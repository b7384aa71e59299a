// The leader tab: publishes the state to the other tabs and executes their calls.

import type { Engine } from "../engine/engine.js";
import { getVersion } from "../engine/message_lists.js";
import type { QueuedEvent } from "../state/client_state.js";
import {
  type Calls,
  type ChatUpdate,
  encodeError,
  encodeEvent,
  type Snapshot,
  type TabMessage,
} from "./tab_messages.js";

const OPENED_MAX = 100; // chats whose messages are published

/** Publishes an engine to the tabs of a channel. */
export class Publisher {
  readonly #engine: Engine;
  readonly #post: (message: TabMessage) => void;
  readonly #opened = new Map<string, Map<number, string>>(); // chat → seq → published version

  constructor(engine: Engine, post: (message: TabMessage) => void) {
    this.#engine = engine;
    this.#post = post;
  }

  /** Publish events and the chats that changed. */
  publish(events: QueuedEvent[], chats: Iterable<string>): void {
    const { user, device, isOnline } = this.#engine;
    this.#post({
      kind: "update",
      ...{ user, device, isOnline },
      events: events.map(({ event }) => encodeEvent(event)),
      chats: [...chats].map((chat) => this.#buildUpdate(chat)),
    });
  }

  /** Execute a call of another tab and send the result. */
  async execute(call: TabMessage & { kind: "call" }): Promise<void> {
    const { from: to, number } = call;
    try {
      const result = await this.#call(call.method, call.args);
      this.#post({ kind: "answer", to, number, result });
    } catch (error) {
      this.#post({ kind: "answer", to, number, error: encodeError(error) });
    }
  }

  #call(method: keyof Calls, args: unknown[]): unknown {
    const engine = this.#engine;
    switch (method) {
      case "submit":
        return engine.submit(...(args as Calls["submit"][0]));
      case "request":
        return engine.request(...(args as Calls["request"][0]));
      case "notify":
        engine.notify(...(args as Calls["notify"][0]));
        return null;
      case "setWatched":
        engine.setWatched(...(args as Calls["setWatched"][0]));
        return null;
      case "clearChat":
        engine.clearChat(...(args as Calls["clearChat"][0]));
        return null;
      case "applyInfo":
        engine.applyInfo(...(args as Calls["applyInfo"][0]));
        return null;
      case "setDraft":
        engine.setDraft(...(args as Calls["setDraft"][0]));
        return null;
      case "openChat":
        return this.#openChat(...(args as Calls["openChat"][0]));
      case "snapshot":
        return this.#snapshot();
    }
  }

  #snapshot(): Snapshot {
    const { user, device, isOnline } = this.#engine;
    const chats = this.#engine.listChats().map((chat) => this.#describe(chat));
    return { user, device, isOnline, chats };
  }

  #openChat(chat: string): ChatUpdate {
    const messages = this.#engine.messages(chat);
    if (!this.#opened.has(chat)) {
      const [oldest] = this.#opened.keys();
      if (oldest !== undefined && this.#opened.size >= OPENED_MAX) {
        this.#opened.delete(oldest);
        this.#post({ kind: "closed", chat: oldest });
      }
      const versions = new Map(messages.map((message) => [message.seq, getVersion(message)]));
      this.#opened.set(chat, versions);
    }
    return { ...this.#describe(chat), changed: [...messages] };
  }

  #describe(chat: string): ChatUpdate {
    const engine = this.#engine;
    const description = engine.describe(chat);
    return { chat, description, pending: engine.pending(chat), draft: engine.draft(chat) };
  }

  #buildUpdate(chat: string): ChatUpdate {
    const published = this.#opened.get(chat);
    if (published === undefined) return this.#describe(chat);
    const messages = this.#engine.messages(chat);
    const changed = messages.filter((message) => {
      return published.get(message.seq) !== getVersion(message);
    });
    const seqs = new Set(messages.map(({ seq }) => seq));
    const removed = [...published.keys()].filter((seq) => !seqs.has(seq));
    for (const message of changed) published.set(message.seq, getVersion(message));
    for (const seq of removed) published.delete(seq);
    return { ...this.#describe(chat), changed, removed };
  }
}
