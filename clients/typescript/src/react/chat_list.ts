// The chat list: the user's chats, most recently active first, loaded page by page.

import type { Chat } from "../client/chat.js";
import type { ChatClient } from "../client/client.js";
import type { ChatEvent } from "../state/events.js";

const PAGE = 50;

/** The chats of the user. */
export interface ChatListView {
  /** The loaded chats, most recently active first, without chats that the user has left. */
  readonly chats: readonly Chat[];
  /** True if the server may have more chats. */
  readonly hasMore: boolean;
  readonly isLoading: boolean;
  /** The error of the last page; null if it was loaded. */
  readonly error: Error | null;
  /** Load the next page. */
  readonly loadMore: () => Promise<void>;
}

/** Loads the chat list and keeps it sorted. */
export class ChatList {
  readonly #client: ChatClient;
  readonly #onChange: () => void;
  readonly #addedTs = new Map<string, number>(); // chat → time of its addition, in µs
  #view: ChatListView;
  #listed = new Map<string, Chat>();
  #next: string | null | undefined; // undefined: no page was loaded
  #loading: Promise<void> | null = null;
  #unread = 0;

  constructor(client: ChatClient, onChange: () => void) {
    this.#client = client;
    this.#onChange = onChange;
    const loadMore = (): Promise<void> => this.#load();
    this.#view = { chats: [], hasMore: true, isLoading: false, error: null, loadMore };
  }

  /** Return the list; the same object until it changes. */
  get view(): ChatListView {
    return this.#view;
  }

  /** The number of unread messages in the loaded chats. */
  get unread(): number {
    return this.#unread;
  }

  /** Apply the changes of some chats. */
  update(ids: ReadonlySet<string>): void {
    const isSame = [...ids].every((id) => this.#listed.get(id) === this.#find(id));
    if (isSame) return;
    const chats = this.#client.chats
      .map(({ snapshot }) => snapshot)
      .filter(({ isKnown, isLeft }) => isKnown && !isLeft);
    const times = new Map(chats.map((chat) => [chat, this.#getActivityTs(chat)]));
    const getTs = (chat: Chat): number => times.get(chat) ?? 0;
    chats.sort((a, b) => getTs(b) - getTs(a) || (a.id < b.id ? -1 : 1));
    this.#listed = new Map(chats.map((chat) => [chat.id, chat]));
    for (const id of this.#addedTs.keys()) if (!this.#listed.has(id)) this.#addedTs.delete(id);
    this.#unread = chats.reduce((sum, { unread }) => sum + unread, 0);
    this.#set({ chats });
  }

  #find(id: string): Chat | undefined {
    const { snapshot } = this.#client.chat(id);
    return snapshot.isKnown && !snapshot.isLeft ? snapshot : undefined;
  }

  #getActivityTs({ id, lastMessage }: Chat): number {
    return Math.max(lastMessage?.ts ?? 0, this.#addedTs.get(id) ?? 0);
  }

  /** Move a new chat above the others, although it has no message yet. */
  apply(event: ChatEvent): void {
    if (event.type !== "chatChanged" || event.change !== null) return;
    if (this.#client.chat(event.chat).lastMessage === null) {
      this.#addedTs.set(event.chat, Date.now() * 1000);
      this.#listed.delete(event.chat); // sorted again by `update`
    }
  }

  /** Load the first page, unless it is already loaded. */
  async onConnected(): Promise<void> {
    if (this.#next === undefined && this.#client.isOnline) await this.#load();
  }

  async #load(): Promise<void> {
    if (this.#next === null) return;
    this.#loading ??= this.#loadNow().finally(() => {
      this.#loading = null;
    });
    await this.#loading;
  }

  async #loadNow(): Promise<void> {
    this.#set({ isLoading: true, error: null });
    try {
      const after = this.#next == null ? {} : { after: this.#next };
      const page = await this.#client.loadChats({ limit: PAGE, ...after });
      this.#next = page.next;
      this.#set({ isLoading: false, hasMore: page.next !== null });
    } catch (error) {
      this.#set({ isLoading: false, error: error as Error });
    }
  }

  #set(changes: Partial<ChatListView>): void {
    this.#view = { ...this.#view, ...changes };
    this.#onChange();
  }
}
