// Messages that the server refused, until the user sends them again or deletes them.
//
// Bounds: the content of the last `REMEMBERED_MAX` operations is remembered; `FAILED_MAX` messages.

import type { ChatClient, ChatError, PendingOperation } from "tierchat";
import { errorText } from "../../app/errors";
import { showToast } from "../../design";
import { Observable } from "./observable";
import { unsentOf, type Unsent } from "./rows";

const REMEMBERED_MAX = 500;
const FAILED_MAX = 50;

/** A refused message of one chat. */
export interface FailedSend extends Unsent {
  chat: string;
}

/** The refused messages of a client. */
export class FailedSends {
  readonly all = new Observable<readonly FailedSend[]>([]);
  readonly #operations = new Map<string, PendingOperation>();

  constructor(client: ChatClient) {
    client.on((event) => {
      if (event.type === "refused") this.#refused(event.ref, event.chat, event.error);
      else if (event.type === "acked") this.#operations.delete(event.ref);
    });
  }

  /** Remember operations that may be refused later. */
  observe(operations: readonly PendingOperation[]): void {
    for (const operation of operations) this.#operations.set(operation.ref, operation);
    for (const ref of this.#operations.keys()) {
      if (this.#operations.size <= REMEMBERED_MAX) break;
      this.#operations.delete(ref);
    }
  }

  /** Remove a message; return it. */
  take(ref: string): FailedSend | null {
    const found = this.all.get().find((each) => each.ref === ref) ?? null;
    this.all.set(this.all.get().filter((each) => each.ref !== ref));
    return found;
  }

  #refused(ref: string, chat: string, error: ChatError): void {
    const operation = this.#operations.get(ref);
    this.#operations.delete(ref);
    if (operation === undefined || operation.fields.type !== "send") {
      showToast(errorText(error), { kind: "error" });
      return;
    }
    const failed = { ...unsentOf(ref, operation.fields, Date.now(), error), chat };
    this.all.set([...this.all.get(), failed].slice(-FAILED_MAX));
  }
}

const stores = new WeakMap<ChatClient, FailedSends>();

/** Return the refused messages of a client. */
export function failedSendsOf(client: ChatClient): FailedSends {
  let store = stores.get(client);
  if (store === undefined) stores.set(client, (store = new FailedSends(client)));
  return store;
}
