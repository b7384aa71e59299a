// The state of one open conversation: rows, selection, reply or edit, and dialogs.

import { flushSync } from "react-dom";
import {
  type Chat,
  type ChatClient,
  ChatError,
  type ChatEvent,
  type Draft,
  type Message,
} from "tierchat";
import type { ViewerItem } from "../../content/Viewer";
import { copyText } from "../../data/clipboard";
import { Observable } from "../../data/observable";
import { showToast } from "../../design";
import { getText } from "../../i18n";
import { getErrorText } from "../../i18n/errors";
import { type FailedSends, getFailedSends } from "./failed_sends";
import { GroupInfo } from "./group_info";
import { createHistorySource } from "./history_source";
import { MessageWindow, type WindowState } from "./message_window";
import { type Row, RowBuilder } from "./rows";

const HIGHLIGHT_MS = 2_000;
const TIMER_MS_MAX = 86_400_000;
const QUOTES_MAX = 200; // quoted messages outside the window

/** State of the list. */
export interface ListState extends Omit<WindowState, "entries"> {
  readonly rows: readonly Row[];
}

/** The message that the composer replies to or edits. */
export interface ComposerTarget {
  kind: "reply" | "edit";
  message: Message;
}

/** The open dialog. */
export type OpenDialog =
  | { kind: "memory" | "endSession" | "renewSession" }
  | { kind: "delete" | "forward"; messages: readonly Message[] }
  | { kind: "report"; message: Message }
  | { kind: "date" }
  | { kind: "viewer"; items: readonly ViewerItem[]; start: number };

/** An open conversation. `start` subscribes to the client; `stop` unsubscribes. */
export class ConversationModel {
  readonly client: ChatClient;
  readonly chat: Chat;
  readonly window: MessageWindow;
  readonly list: Observable<ListState>;
  readonly target = new Observable<ComposerTarget | null>(null);
  readonly dialog = new Observable<OpenDialog | null>(null);
  /** Seqs of the selected messages; null: no selection. */
  readonly selection = new Observable<ReadonlySet<number> | null>(null);
  /** The number of unread messages. */
  readonly unread = new Observable(0);
  /** The target of the last jump, for a short time. */
  readonly highlighted = new Observable<number | null>(null);
  /** Changes when the list must show its end. */
  readonly ends = new Observable(0);
  readonly failed: FailedSends;
  readonly group: GroupInfo;
  readonly #rows = new RowBuilder();
  readonly #quoted = new Map<number, Promise<Message | null>>();
  #unreadAfter: number | null = null;
  #publishedEntries: readonly Message[] = []; // the entries of the last rows
  #isScheduled = false;
  #expiry: ReturnType<typeof setTimeout> | undefined;
  #unsubscribers: (() => void)[] = [];

  constructor(client: ChatClient, chatId: string) {
    this.client = client;
    this.chat = client.chat(chatId);
    this.window = new MessageWindow(createHistorySource(client, chatId));
    this.failed = getFailedSends(client);
    this.group = new GroupInfo(client, this.chat);
    this.list = new Observable({ ...this.window.getState(), rows: [] as readonly Row[] });
  }

  get me(): string {
    return this.client.user;
  }

  /** The AI companion of a session, or null. */
  get companion(): string | null {
    if (this.chat.kind !== "companion") return null;
    return Object.keys(this.chat.members ?? {}).find((user) => user !== this.me) ?? null;
  }

  /** True if the user can no longer send messages here. */
  get isReadOnly(): boolean {
    return this.chat.isEnded || this.chat.isLeft;
  }

  /** Subscribe to the chat and show message `seq`; null: the first unread or newest message. */
  start(seq: number | null): void {
    const { client, chat } = this;
    this.#unsubscribers = [
      client.on((event) => this.#onEvent(event)),
      client.onChange((chats) => {
        if (chats.has(chat.id)) this.#schedule();
      }),
      this.window.subscribe(() => {
        // Rows added at the start need a separate render; see `isShifted`.
        if (this.window.getState().isShifted) flushSync(() => this.#publish());
        else this.#publish();
      }),
      this.failed.all.subscribe(() => this.#schedule()),
      this.group.start(),
    ];
    this.#unreadAfter = chat.unread > 0 ? chat.read : null;
    this.unread.set(chat.unread);
    if (seq === null) void this.window.open(chat.read, chat.unread);
    else void this.jumpTo(seq);
  }

  stop(): void {
    for (const unsubscribe of this.#unsubscribers) unsubscribe();
    this.#unsubscribers = [];
    clearTimeout(this.#expiry);
  }

  #onEvent(event: ChatEvent): void {
    if (event.type === "connected") {
      if (this.window.getState().error !== null) void this.window.retry();
      return;
    }
    if (event.type === "restarted") {
      if (event.isNewEpoch || event.chats.includes(this.chat.id)) void this.window.jumpToNewest();
      return;
    }
    if (!("chat" in event) || event.chat !== this.chat.id) return;
    switch (event.type) {
      case "messageAdded":
        if (event.message.sender !== this.me && !isReading()) this.#moveDivider();
        break;
      case "memberChanged":
      case "pinsChanged":
        this.window.addEntry(event.change);
        break;
      case "chatChanged":
        if (event.change !== null) this.window.addEntry(event.change);
        break;
      case "messageChanged":
        if (event.message === null) this.window.applyChange(event.change);
        break;
      case "messagesHidden":
        this.window.hide(event.seqs);
        break;
      case "skipped":
      case "entriesWithdrawn":
        void this.window.jumpToNewest();
        break;
      default:
    }
  }

  /** Move the unread divider below the last read message, while the user is not reading. */
  #moveDivider(): void {
    const { read } = this.chat;
    if (read > (this.#unreadAfter ?? -1)) this.#unreadAfter = read;
  }

  /** Hide messages when they expire. */
  readonly #expire = (): void => {
    clearTimeout(this.#expiry);
    const nowMs = Date.now();
    const waitMs = this.window.expire(nowMs / 1000) * 1000 - nowMs;
    if (waitMs === Infinity) return;
    this.#expiry = setTimeout(this.#expire, Math.min(waitMs, TIMER_MS_MAX));
  };

  /** Schedule one update for all changes that the SDK reports in the same task. */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    queueMicrotask(() => {
      this.#isScheduled = false;
      if (this.#unsubscribers.length === 0) return;
      this.window.refresh();
      this.#publish();
    });
  }

  #publish(): void {
    const { entries, ...others } = this.window.getState();
    // `isShifted` is valid for one update only; later updates have the same entries.
    const state = { ...others, isShifted: others.isShifted && entries !== this.#publishedEntries };
    this.#publishedEntries = entries;
    const { chat, me } = this;
    const { pending } = chat;
    const rows = this.#rows.build(entries, state.isLive, {
      me,
      marks: chat.marks,
      unreadAfter: this.#unreadAfter,
      pending,
      failed: this.failed.all.get().filter((failed) => failed.chat === chat.id),
    });
    this.unread.set(chat.unread);
    const previous = this.list.get();
    const isSame =
      rows.length === previous.rows.length &&
      rows.every((row, index) => row === previous.rows[index]) &&
      Object.entries(state).every(([name, value]) => previous[name as keyof ListState] === value);
    if (!isSame) this.list.set({ ...state, rows });
    this.#expire();
  }

  // actions

  /** Send a message, and show the end of the chat. */
  send(draft: Draft): void {
    this.#unreadAfter = null;
    this.chat.send(draft);
    this.showEnd();
  }

  /** Show the end of the chat, after a message of the user. */
  showEnd(): void {
    if (!this.list.get().isLive) void this.window.jumpToNewest();
    this.ends.set(this.ends.get() + 1);
  }

  /** Send a refused message again; `text` replaces its text. */
  retry(ref: string, text?: string): void {
    const failed = this.failed.remove(ref);
    if (failed === null) return;
    this.send({
      body: text ?? failed.body,
      attachments: failed.files.map(({ id }) => id),
      ...(failed.replyTo === null ? {} : { replyTo: failed.replyTo }),
    });
  }

  /** Reply to a message or edit it in the composer, if the user is allowed to. */
  setTarget(kind: ComposerTarget["kind"], message: Message): void {
    const canEdit = message.sender === this.me && message.body !== "";
    if (this.isReadOnly || (kind === "edit" && !canEdit)) return;
    this.target.set({ kind, message });
  }

  /** Remove a refused message. */
  discard(ref: string): void {
    this.failed.remove(ref);
    if (this.target.get()?.message.ref === ref) this.target.set(null);
  }

  /** Set the user's reaction to a message, or remove it if it is the same. */
  react(message: Message, emoji: string): void {
    const isOwn = message.reactions?.[this.me] === emoji;
    this.chat.react(message.seq, isOwn ? "" : emoji);
  }

  /** Scroll to a message. */
  async jumpTo(seq: number): Promise<void> {
    const isLoaded = await this.window.jumpTo(seq);
    if (!isLoaded) {
      showToast(getText().conversation.messageGone, { kind: "error" });
      if (this.list.get().rows.length === 0) void this.window.jumpToNewest();
      return;
    }
    this.highlighted.set(null);
    this.highlighted.set(seq);
    setTimeout(() => {
      if (this.highlighted.get() === seq) this.highlighted.set(null);
    }, HIGHLIGHT_MS);
  }

  /** Copy the text of messages and show the result. */
  async copy(messages: readonly Message[]): Promise<void> {
    const words = getText().conversation;
    const isCopied = await copyText(messages.map(({ body }) => body).join("\n"));
    if (isCopied) showToast(words.copied);
    else showToast(words.copyFailed, { kind: "error" });
  }

  /** Save a message to the user's list of saved items. */
  async save({ seq }: Message): Promise<void> {
    const { chat, client } = this;
    const isDone = await this.attempt(() =>
      client.http.call("save_message", { chat: chat.id, seq }),
    );
    if (isDone) showToast(getText().conversation.messageSaved);
  }

  /** Run a request and show its error; return whether it succeeded. */
  async attempt(work: () => Promise<unknown>): Promise<boolean> {
    try {
      await work();
      return true;
    } catch (error) {
      showToast(getErrorText(error), { kind: "error" });
      return false;
    }
  }

  /** Select or deselect a message. */
  toggleSelected(seq: number): void {
    const next = new Set(this.selection.get());
    if (!next.delete(seq)) next.add(seq);
    this.selection.set(next);
  }

  /** Return the selected messages, in order. */
  listSelectedMessages(): Message[] {
    const selected = this.selection.get() ?? new Set<number>();
    return this.list
      .get()
      .rows.map(({ message }) => message)
      .filter(({ seq, deleted }) => selected.has(seq) && deleted !== true);
  }

  /** Load a quoted message; null if the user cannot read it. */
  loadQuoted(seq: number): Promise<Message | null> {
    let message = this.#quoted.get(seq);
    if (message === undefined) {
      const call = this.client.http.call("get_message", { chat: this.chat.id, seq });
      message = call.then(
        (loaded) => loaded as Message,
        (error: unknown) => {
          if (error instanceof ChatError && error.isTemporary) this.#quoted.delete(seq);
          return null;
        },
      );
      this.#quoted.set(seq, message);
      const [oldest] = this.#quoted.keys();
      if (this.#quoted.size > QUOTES_MAX && oldest !== undefined) this.#quoted.delete(oldest);
    }
    return message;
  }

  /** Return a message of the window. */
  find(seq: number): Message | null {
    return this.window.getState().entries.find((entry) => entry.seq === seq) ?? null;
  }

  /** Open the viewer at a file, with the other files of the loaded messages. */
  openViewer(file: string, seq: number, isVisual: (item: ViewerItem) => boolean): void {
    const items = this.window
      .getState()
      .entries.flatMap((message) =>
        (message.attachments ?? []).map((attachment) => ({
          file: attachment,
          seq: message.seq,
          sender: message.sender,
          ts: message.ts,
        })),
      )
      .filter(isVisual);
    const start = items.findIndex((item) => item.file.id === file && item.seq === seq);
    if (start >= 0) this.dialog.set({ kind: "viewer", items, start });
  }
}

/** Return whether this page is visible and has the focus. */
export function isReading(): boolean {
  return document.visibilityState === "visible" && document.hasFocus();
}
