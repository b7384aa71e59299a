// The messages of one chat for a list: the messages that the client has, and older pages.
//
// Invariant: `messages` ascends in seq and has no gap. If the client skips or withdraws entries,
// the older messages are dropped.

import type { Chat } from "../client/chat.js";
import type { ChatClient } from "../client/client.js";
import type { PendingOperation } from "../engine/backend.js";
import { getExpiryS, reuseObjects } from "../engine/message_lists.js";
import type { Message } from "../generated/frames.js";
import type { ChatError } from "../state/errors.js";
import type { ChatEvent } from "../state/events.js";
import { applyChange, applyExpiry, buildTombstone, getRev, isMessage } from "../state/model.js";

const PAGE = 50;
const MESSAGES_MAX = 10_000;
const CLOSED_MAX = 1_000; // messages of a chat that no component shows
const FAILED_MAX = 50;
const TIMER_S_MAX = 86_400;

/** An operation that the server refused. */
export interface FailedOperation extends PendingOperation {
  readonly error: ChatError;
  /** Send the operation again, with a new ref. */
  readonly retry: () => void;
  /** Remove the operation from the list. */
  readonly discard: () => void;
}

/** The messages of a chat. */
export interface MessagesView {
  /** In ascending seq, without changes and membership entries. At most 10,000. */
  readonly messages: readonly Message[];
  /** The user's operations that `messages` does not contain yet, in order. */
  readonly pending: readonly PendingOperation[];
  /** The user's operations that the server refused, until they are retried or discarded. */
  readonly failed: readonly FailedOperation[];
  /** True if the server may have older messages. */
  readonly hasOlder: boolean;
  readonly isLoading: boolean;
  /** The error of the last page; null if it was loaded. */
  readonly error: Error | null;
  /** Load a page of older messages. */
  readonly loadOlder: () => Promise<void>;
}

/** Loads the messages of a chat and keeps them current. */
export class MessageWindow {
  readonly #chat: Chat;
  readonly #client: ChatClient;
  readonly #onChange: () => void;
  #view: MessagesView;
  #clientMessages: readonly Message[] = []; // the messages that the client has
  #hasGap = false; // between the messages of the client and older messages
  #firstLoaded: number | null = null; // seq of the oldest entry of a page
  #isAtStart = false;
  #isStarted = false; // the newest page is loaded, or is not needed
  #loading: Promise<void> | null = null;
  #viewers = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(chat: Chat, client: ChatClient, onChange: () => void) {
    this.#chat = chat;
    this.#client = client;
    this.#onChange = onChange;
    this.#view = {
      messages: [],
      pending: [],
      failed: [],
      hasOlder: true,
      isLoading: false,
      error: null,
      loadOlder: () => this.#load(),
    };
    this.update();
  }

  /** The messages; the same object until there is a change. */
  get view(): MessagesView {
    return this.#view;
  }

  /** True if no component uses this window and it has no failed operations. */
  get isDroppable(): boolean {
    return this.#viewers === 0 && this.#view.failed.length === 0;
  }

  /** Load the newest messages, and keep older ones until the returned function is called. */
  open(): () => void {
    this.#viewers += 1;
    this.update();
    this.#scheduleExpiry(Date.now() / 1000);
    this.onConnected();
    return () => {
      this.#viewers -= 1;
      if (this.#viewers > 0) return;
      clearTimeout(this.#timer);
      this.#dropOldest(CLOSED_MAX);
    };
  }

  /** Load the newest messages, if they are missing. */
  onConnected(): void {
    if (this.#viewers === 0 || !this.#client.isOnline || this.#isStarted) return;
    void this.#load();
  }

  // changes

  /** Apply the changes of the client. */
  update(): void {
    const { messages } = this.#chat;
    if (messages !== this.#clientMessages || this.#hasGap) this.#applyClientMessages(messages);
    const pending = this.#listPending();
    if (pending !== this.#view.pending) this.#set({ pending });
  }

  #applyClientMessages(messages: readonly Message[]): void {
    const first = messages[0]?.seq ?? 0;
    const isAdjacent = !this.#hasGap && messages.length > 0;
    const older = isAdjacent ? this.#view.messages.filter(({ seq }) => seq < first) : [];
    if (!isAdjacent) this.#firstLoaded = null;
    if (this.#hasGap) this.#isAtStart = false;
    this.#clientMessages = messages;
    this.#hasGap = false;
    this.#show([...older, ...messages]);
    if (this.#viewers === 0) this.#dropOldest(CLOSED_MAX);
  }

  /** Hide the messages that the user has cleared, on this device or another. */
  onCleared(): void {
    this.#show(this.#view.messages);
  }

  /** Apply an event to the older messages, which the client does not have. */
  apply(event: ChatEvent): void {
    switch (event.type) {
      case "messageChanged":
        this.#change([event.change.target ?? 0], (old) => applyChange(old, event.change));
        break;
      case "messagesHidden":
        this.#change(event.seqs, (old) => buildTombstone(old, getRev(old)));
        break;
      case "skipped":
      case "entriesWithdrawn":
        this.#hasGap = true;
        break;
      case "restarted":
        this.#hasGap ||= event.isNewEpoch;
        this.#isStarted &&= !event.chats.includes(this.#chat.id);
        break;
      default:
    }
  }

  #change(seqs: readonly number[], change: (message: Message) => Message): void {
    const first = this.#clientMessages[0]?.seq ?? Infinity;
    const older = new Set(seqs.filter((seq) => seq < first));
    if (older.size === 0) return;
    const { messages } = this.#view;
    this.#show(messages.map((old) => (older.has(old.seq) ? change(old) : old)));
  }

  #show(all: readonly Message[]): void {
    const nowS = Date.now() / 1000;
    const previous = this.#view.messages;
    const { clearedUpto } = this.#client.preferences.get(this.#chat.id);
    const visible = all.filter(({ seq }) => seq > clearedUpto);
    const shown = visible.map((message) => applyExpiry(message, nowS));
    const messages = reuseObjects(shown, previous);
    if (messages !== previous) this.#set({ messages, hasOlder: this.#hasOlder(messages) });
    this.#scheduleExpiry(nowS);
  }

  #scheduleExpiry(nowS: number): void {
    clearTimeout(this.#timer);
    const expiryS = getExpiryS(this.#view.messages);
    if (this.#viewers === 0 || expiryS === Infinity) return;
    const waitS = Math.min(Math.max(expiryS - nowS, 0), TIMER_S_MAX);
    this.#timer = setTimeout(() => this.#show(this.#view.messages), waitS * 1000 + 1);
  }

  #hasOlder(messages: readonly Message[]): boolean {
    const first = messages[0]?.seq ?? this.#firstLoaded ?? (this.#isStarted ? 1 : Infinity);
    const { clearedUpto } = this.#client.preferences.get(this.#chat.id);
    return !this.#isAtStart && first > clearedUpto + 1 && messages.length < MESSAGES_MAX;
  }

  #dropOldest(messagesMax: number): void {
    const { messages } = this.#view;
    if (messages.length <= messagesMax) return;
    this.#firstLoaded = null;
    this.#isAtStart = false;
    this.#show(messages.slice(-messagesMax));
  }

  // the user's operations

  #listPending(): readonly PendingOperation[] {
    const all = this.#chat.pending;
    const previous = this.#view.pending;
    if (all.length === 0) return previous.length === 0 ? previous : all;
    const shown = new Set(this.#view.messages.map(({ sender, ref }) => `${sender} ${ref}`));
    const { user } = this.#client;
    const pending = all.filter(({ ref, stage, fields }) =>
      fields.type === "send" ? !shown.has(`${user} ${ref}`) : stage !== "acked",
    );
    const isSame =
      pending.length === previous.length &&
      pending.every(({ ref, stage }, index) => {
        return ref === previous[index]?.ref && stage === previous[index]?.stage;
      });
    return isSame ? previous : pending;
  }

  /** Record that the server refused an operation. */
  onRefused(operation: PendingOperation, error: ChatError): void {
    const discard = (): void => {
      this.#set({ failed: this.#view.failed.filter(({ ref }) => ref !== operation.ref) });
    };
    const retry = (): void => {
      discard();
      this.#chat.retry(operation); // another refusal is added to `failed` again
    };
    const failed = [...this.#view.failed, { ...operation, error, retry, discard }];
    this.#set({ failed: failed.slice(-FAILED_MAX) });
  }

  // pages

  async #load(): Promise<void> {
    this.#loading ??= this.#loadNow().finally(() => {
      this.#loading = null;
    });
    await this.#loading;
  }

  async #loadNow(): Promise<void> {
    const { messages } = this.#view;
    const isEmpty = messages.length === 0 && this.#firstLoaded === null;
    const isFirst = isEmpty || this.#chat.needsHistory;
    if (!isFirst && !this.#isStarted && messages.length >= PAGE) {
      this.#isStarted = true; // the client has a full page
      return;
    }
    if (!isFirst && !this.#hasOlder(messages)) {
      this.#isStarted = true;
      return;
    }
    this.#set({ isLoading: true, error: null });
    try {
      await this.#loadPage(isFirst ? null : this.#getOldestSeq(messages));
      this.#set({ isLoading: false });
    } catch (error) {
      this.#set({ isLoading: false, error: error as Error });
    }
  }

  #getOldestSeq(messages: readonly Message[]): number {
    return Math.min(this.#firstLoaded ?? Infinity, messages[0]?.seq ?? Infinity);
  }

  async #loadPage(before: number | null): Promise<void> {
    const range = before === null ? {} : { before };
    const page = await this.#chat.history({ ...range, limit: PAGE });
    if (this.#hasGap) return; // the page is no longer adjacent
    const first = page.messages[0]?.seq;
    if (page.tier !== "cache") this.#isAtStart = !page.hasMore;
    if (first !== undefined) this.#firstLoaded = first;
    this.#isStarted = true;
    const oldest = this.#view.messages[0]?.seq ?? Infinity;
    const older = page.messages.filter((entry) => isMessage(entry) && entry.seq < oldest);
    this.#show([...older, ...this.#view.messages].slice(-MESSAGES_MAX));
    const hasOlder = this.#hasOlder(this.#view.messages);
    if (hasOlder !== this.#view.hasOlder) this.#set({ hasOlder });
  }

  #set(changes: Partial<MessagesView>): void {
    this.#view = { ...this.#view, ...changes };
    this.#onChange();
  }
}
