// Settings of a group, and the user's permissions in it. The chat list has none of them.

import type { Chat, ChatClient, ChatEvent, Http } from "tierchat";
import { Observable } from "../../data/observable";
import { getNowMs } from "../../i18n/format";

/** The info of a group from the server. It is reloaded after changes while the chat is open. */
export class GroupInfo {
  /** Null until it is loaded. */
  readonly loaded = new Observable<Http.ChatInfo | null>(null);
  readonly #client: ChatClient;
  readonly #chat: Chat;

  constructor(client: ChatClient, chat: Chat) {
    this.#client = client;
    this.#chat = chat;
  }

  /** Subscribe to changes of the group; return a function that unsubscribes. */
  start(): () => void {
    void this.#load();
    return this.#client.on((event) => {
      if (event.type === "connected" || this.#isRelevant(event)) void this.#load();
    });
  }

  #isRelevant(event: ChatEvent): boolean {
    if (!("chat" in event) || event.chat !== this.#chat.id) return false;
    const isMember = event.type === "memberChanged" && event.change.user === this.#client.user;
    return isMember || event.type === "chatChanged";
  }

  async #load(): Promise<void> {
    const { kind, isLeft } = this.#chat;
    if (kind !== "group" || isLeft || !this.#client.isOnline) return;
    try {
      this.loaded.set((await this.#chat.load()) as Http.ChatInfo);
    } catch {
      // Loaded after the next connection or change.
    }
  }

  /** False while the user's permissions in a group are not loaded. */
  get isLoaded(): boolean {
    return this.#chat.kind !== "group" || this.loaded.get() !== null;
  }

  /** True if the user is an owner or admin of the group. */
  get isManager(): boolean {
    const { user } = this.#client;
    const role = this.loaded.get()?.roles?.[user] ?? this.#chat.members?.[user];
    return this.#chat.kind === "group" && (role === "owner" || role === "admin");
  }

  /** True if the user is muted now. */
  get isMuted(): boolean {
    const { user } = this.#client;
    const info = this.loaded.get();
    if (info === null) return this.#chat.isMuted(user);
    const until = info.muted?.[user] ?? 1; // 1: expired
    return until === 0 || until > getNowMs() / 1000;
  }

  /** Minimum seconds between two messages of a member. */
  get slowS(): number {
    const info = this.loaded.get();
    return info === null ? this.#chat.slowS : (info.slow_s ?? 0);
  }
}
