// Messages that the server refused, until the user sends them again or deletes them.
//
// They are saved in localStorage for all tabs and the next start, unless the login is for one tab.
// Bounds: the content of the last `OPERATIONS_MAX` operations, and `FAILED_MAX` messages.

import { type ChatClient, ChatError, type PendingOperation } from "tierchat";
import { findFile, putFile } from "../../content/known_files";
import { browserStorage } from "../../data/browser_storage";
import { Observable } from "../../data/observable";
import { showToast } from "../../design";
import { getErrorText } from "../../i18n/errors";
import { getNowMs } from "../../i18n/format";
import { parseUnsent, type Unsent } from "./unsent";

const OPERATIONS_MAX = 500;
const FAILED_MAX = 50;

/** A refused message of one chat. */
export interface FailedSend extends Unsent {
  chat: string;
}

type Saved = Omit<FailedSend, "error"> & { code: string; reason: string };

/** The refused messages of a client. */
export class FailedSends {
  readonly all = new Observable<readonly FailedSend[]>([]);
  readonly #key: string | null;
  readonly #operations = new Map<string, PendingOperation>();

  /** Collect refused messages. `user`: save them in this browser for this user; "": do not. */
  constructor(client: ChatClient, user: string) {
    this.#key = user === "" ? null : `tierchat.failed.${user}`;
    this.#restore();
    for (const chat of client.chats) this.#recordOperations(chat.pending);
    client.onChange((chats) => {
      for (const id of chats) this.#recordOperations(client.chat(id).pending);
    });
    client.on((event) => {
      if (event.type === "refused") this.#handleRefused(event.ref, event.chat, event.error);
      else if (event.type === "acked") this.#operations.delete(event.ref);
    });
    addEventListener("storage", ({ key }) => {
      if (key !== null && key === this.#key) this.#restore();
    });
  }

  /** Remove a message and return it; null if there is none. */
  remove(ref: string): FailedSend | null {
    const removed = this.all.get().find((send) => send.ref === ref) ?? null;
    this.#set(this.all.get().filter((send) => send.ref !== ref));
    return removed;
  }

  /** Record operations, because a refusal does not include the content. */
  #recordOperations(operations: readonly PendingOperation[]): void {
    for (const operation of operations) this.#operations.set(operation.ref, operation);
    for (const ref of this.#operations.keys()) {
      if (this.#operations.size <= OPERATIONS_MAX) break;
      this.#operations.delete(ref);
    }
  }

  #handleRefused(ref: string, chat: string, error: ChatError): void {
    const operation = this.#operations.get(ref);
    this.#operations.delete(ref);
    if (operation === undefined || operation.fields.type !== "send") {
      showToast(getErrorText(error), { kind: "error" });
      return;
    }
    const unsent = parseUnsent(ref, operation.fields, getNowMs(), error);
    const files = unsent.files.map((file) => findFile(file.id) ?? file);
    // Another tab may have added the same message.
    const others = this.all.get().filter((send) => send.ref !== ref);
    this.#set([...others, { ...unsent, files, chat }].slice(-FAILED_MAX));
  }

  #set(failed: readonly FailedSend[]): void {
    this.all.set(failed);
    if (this.#key === null) return;
    const saved = failed.map(({ error, ...others }): Saved => {
      const code = error instanceof ChatError ? error.code : "internal";
      return { ...others, code, reason: error?.message ?? "" };
    });
    browserStorage.setJson(this.#key, saved);
  }

  #restore(): void {
    if (this.#key === null) return;
    try {
      const saved = browserStorage.getJson<Saved[]>(this.#key) ?? [];
      for (const file of saved.flatMap(({ files }) => files)) {
        if (file.name !== undefined) putFile(file);
      }
      this.all.set(
        saved.map(({ code, reason, ...others }) => ({
          ...others,
          error: new ChatError(code, reason),
        })),
      );
    } catch {
      // The saved value has another format.
    }
  }
}

const stores = new WeakMap<ChatClient, FailedSends>();

/** Collect the refused messages of a client from now on; see {@link FailedSends}. */
export function startFailedSends(client: ChatClient, user: string): void {
  stores.set(client, new FailedSends(client, user));
}

/** Return the refused messages of a client. */
export function getFailedSends(client: ChatClient): FailedSends {
  let store = stores.get(client);
  if (store === undefined) stores.set(client, (store = new FailedSends(client, "")));
  return store;
}
