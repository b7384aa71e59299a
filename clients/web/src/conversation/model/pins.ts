// The pinned messages of a conversation, newest first.

import type { Http } from "tierchat";
import { Observable } from "../../data/observable";
import type { ConversationModel } from "./conversation_model";

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
      const isThisChat = "chat" in event && event.chat === this.#model.chat.id;
      const isPin = event.type === "pinsChanged" && isThisChat;
      const isMessageChange = event.type === "messageChanged" && isThisChat;
      const isEdit = isMessageChange && this.#has(event.change.target);
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
export function getPins(model: ConversationModel): Pins {
  let list = pins.get(model);
  if (list === undefined) pins.set(model, (list = new Pins(model)));
  return list;
}
