// The pinned messages of a conversation, newest first.

import type { Http } from "tierchat";
import type { ConversationModel } from "./conversation_model";
import { Observable } from "./observable";

/** Loads the pinned messages, and reloads them when they change. */
export class Pins {
  readonly list = new Observable<readonly Http.PinnedMessage[]>([]);
  readonly #model: ConversationModel;

  constructor(model: ConversationModel) {
    this.#model = model;
  }

  /** Subscribe to changes of the pins; return a function that unsubscribes. */
  start(): () => void {
    void this.#load();
    return this.#model.client.on((event) => {
      const isOwn = "chat" in event && event.chat === this.#model.chat.id;
      const isPin = event.type === "pinsChanged" && isOwn;
      const isEdit = event.type === "messageChanged" && isOwn && this.#has(event.change.target);
      if (isPin || isEdit || event.type === "connected") void this.#load();
    });
  }

  #has(seq: number | null | undefined): boolean {
    return this.list.get().some(({ message }) => message.seq === seq);
  }

  async #load(): Promise<void> {
    try {
      this.list.set(await this.#model.chat.pins());
    } catch {
      // Offline: loaded after the next connection.
    }
  }
}

const pins = new WeakMap<ConversationModel, Pins>();

/** Return the pinned messages of a conversation. */
export function pinsOf(model: ConversationModel): Pins {
  let found = pins.get(model);
  if (found === undefined) pins.set(model, (found = new Pins(model)));
  return found;
}
