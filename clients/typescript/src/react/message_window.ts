// The messages of one chat for a list: the messages that the client keeps, and older pages.
//
// Invariant: `messages` ascends in seq and has no gap. If the client skips or withdraws entries,
// the older messages are dropped.

import type { PendingOperation } from "../client/backend.js";
import type { Chat } from "../client/chat.js";
import type { ChatClient } from "../client/client.js";
import { getExpiryS, reuseObjects } from "../client/message_lists.js";
import type { Message } from "../generated/frames.js";
import type { ChatError } from "../state/errors.js";
import type { ChatEvent } from "../state/events.js";
import { applyChange, isMessage, getRev, applyExpiry, buildTombstone } from "../state/model.js";

const PAGE = 50;
const MESSAGES_MAX = 10_000;
const CLOSED_MAX = 1_000; // messages kept of a chat that no component shows
const FAILED_MAX = 50;
const TIMER_S_MAX = 86_400;

/** An operation that the server refused. */
export interface FailedOperation extends PendingOperation {
  readonly error: ChatError;
  /** Submit it again, with a new ref. */
  readonly retry: () => void;
  /** Remove it from the list. */
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
  /** The last page could not be loaded. */
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
  #kept: readonly Message[] = []; // by the client
  #isCut = false; // a gap separates older messages from those that the client keeps
  #firstLoaded: number | null = null; // seq of the oldest entry of a page
  #isAtStart = false;
  #isStarted = false; // the newest page was loaded, or is not needed
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

  /** True if this window can be dropped without a loss. */
  get canDrop(): boolean {
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
    const kept = this.#chat.messages;
    if (kept !== this.#kept || this.#isCut) this.#applyKept(kept);
    const pending = this.#pending();
    if (pending !== this.#view.pending) this.#set({ pending });
  }

  #applyKept(kept: readonly Message[]): void {
    const first = kept[0]?.seq ?? 0;
    const isJoined = !this.#isCut && kept.length > 0;
    const before = isJoined ? this.#view.messages.filter(({ seq }) => seq < first) : [];
    if (!isJoined) this.#firstLoaded = null;
    if (this.#isCut) this.#isAtStart = false;
    this.#kept = kept;
    this.#isCut = false;
    this.#show([...before, ...kept]);
    if (this.#viewers === 0) this.#dropOldest(CLOSED_MAX);
  }

  /** Hide the messages that the user has cleared on any device. */
  onCleared(): void {
    this.#show(this.#view.messages);
  }

  /** Apply an event to the messages that the client does not keep. */
  apply(event: ChatEvent): void {
    switch (event.type) {
      case "messageChanged":
        this.#change([event.change.target ?? 0], (each) => applyChange(each, event.change));
        break;
      case "messagesHidden":
        this.#change(event.seqs, (each) => buildTombstone(each, getRev(each)));
        break;
      case "skipped":
      case "entriesWithdrawn":
        this.#isCut = true;
        break;
      case "restarted":
        this.#isCut ||= event.isNewEpoch;
        this.#isStarted &&= !event.chats.includes(this.#chat.id);
        break;
      default:
    }
  }

  #change(seqs: readonly number[], changed: (message: Message) => Message): void {
    const first = this.#kept[0]?.seq ?? Infinity;
    const older = new Set(seqs.filter((seq) => seq < first));
    if (older.size === 0) return;
    this.#show(this.#view.messages.map((each) => (older.has(each.seq) ? changed(each) : each)));
  }

  #show(given: readonly Message[]): void {
    const nowS = Date.now() / 1000;
    const known = this.#view.messages;
    const { clearedUpto } = this.#client.preferences.get(this.#chat.id);
    const visible = given.filter(({ seq }) => seq > clearedUpto);
    const shown = visible.map((each) => applyExpiry(each, nowS));
    const messages = reuseObjects(shown, known);
    if (messages !== known) this.#set({ messages, hasOlder: this.#hasOlder(messages) });
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

  #pending(): readonly PendingOperation[] {
    const all = this.#chat.pending;
    const known = this.#view.pending;
    if (all.length === 0) return known.length === 0 ? known : all;
    const shown = new Set(this.#view.messages.map(({ sender, ref }) => `${sender} ${ref}`));
    const { user } = this.#client;
    const fresh = all.filter(({ ref, stage, fields }) =>
      fields.type === "send" ? !shown.has(`${user} ${ref}`) : stage !== "acked",
    );
    const isSame =
      fresh.length === known.length &&
      fresh.every(({ ref, stage }, index) => {
        return ref === known[index]?.ref && stage === known[index]?.stage;
      });
    return isSame ? known : fresh;
  }

  /** Record that the server refused an operation. */
  onRefused(operation: PendingOperation, error: ChatError): void {
    const discard = (): void => {
      this.#set({ failed: this.#view.failed.filter(({ ref }) => ref !== operation.ref) });
    };
    const retry = (): void => {
      discard();
      this.#chat.repeat(operation); // another refusal is reported like the first
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
      this.#isStarted = true; // the client has enough
      return;
    }
    if (!isFirst && !this.#hasOlder(messages)) {
      this.#isStarted = true;
      return;
    }
    this.#set({ isLoading: true, error: null });
    try {
      await this.#loadPage(isFirst ? null : this.#oldestSeq(messages));
      this.#set({ isLoading: false });
    } catch (error) {
      this.#set({ isLoading: false, error: error as Error });
    }
  }

  #oldestSeq(messages: readonly Message[]): number {
    return Math.min(this.#firstLoaded ?? Infinity, messages[0]?.seq ?? Infinity);
  }

  async #loadPage(before: number | null): Promise<void> {
    const place = before === null ? {} : { before };
    const page = await this.#chat.history({ ...place, limit: PAGE });
    if (this.#isCut) return; // the page is no longer adjacent
    const first = page.messages[0]?.seq;
    if (page.tier !== "cache") this.#isAtStart = !page.hasMore;
    if (first !== undefined) this.#firstLoaded = first;
    this.#isStarted = true;
    const lowest = this.#view.messages[0]?.seq ?? Infinity;
    const older = page.messages.filter((each) => isMessage(each) && each.seq < lowest);
    this.#show([...older, ...this.#view.messages].slice(-MESSAGES_MAX));
    const hasOlder = this.#hasOlder(this.#view.messages);
    if (hasOlder !== this.#view.hasOlder) this.#set({ hasOlder });
  }

  #set(changes: Partial<MessagesView>): void {
    this.#view = { ...this.#view, ...changes };
    this.#onChange();
  }
}
