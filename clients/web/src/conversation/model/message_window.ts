// The loaded part of a chat: a bounded window of consecutive entries that moves in both directions.
//
// Invariants: `entries` ascend in seq, and no message between the first and the last is missing.
// While `isLive`, the window ends with the newest message; the SDK's copies of the newest messages
// replace those of the window, because the SDK tracks lost and changed entries. After `trim`, at
// most `ENTRIES_MAX` entries remain. An update adds or removes entries at one end only, so that the
// virtual list can keep the scroll position with `isShifted`.

import type { Message } from "tierchat";
import type { HistorySource, SourcePage } from "./history_source";

/** Entries that remain after `trim`. */
export const ENTRIES_MAX = 600;
const PAGE = 100;
const PAGES_MAX = 10; // consecutive pages without visible entries
const SYSTEM_KINDS: ReadonlySet<string> = new Set(["member", "update", "pin"]);
const HIDDEN_KINDS: ReadonlySet<string> = new Set(["edit", "delete", "reaction", "unpin"]);

/** A state of the window. */
export interface WindowState {
  readonly entries: readonly Message[];
  readonly hasOlder: boolean;
  /** True if the window ends with the newest message. */
  readonly isLive: boolean;
  readonly loading: "older" | "newer" | "all" | null;
  readonly error: Error | null;
  /** True if the last update added or removed entries at the start. */
  readonly isShifted: boolean;
  /** Increases when all entries are replaced. */
  readonly generation: number;
  /** Increases with each jump: the list must scroll to `target`. */
  readonly jumpCount: number;
  /** The scroll target of the last jump. */
  readonly target: Target;
}

/** The seq of a message, the first unread message, or the end of the window. */
export type Target = number | "unread" | "end";

const EMPTY: WindowState = {
  entries: [],
  hasOlder: true,
  isLive: true,
  loading: "all",
  error: null,
  isShifted: false,
  generation: 0,
  jumpCount: 0,
  target: "end",
};

/** Return whether an entry is shown as a row. */
export function isShown(entry: Message): boolean {
  return !HIDDEN_KINDS.has(entry.kind);
}

/** Return whether an entry is a note about the chat, not a message. */
export function isSystem(entry: Message): boolean {
  return SYSTEM_KINDS.has(entry.kind);
}

/** A window of one chat. */
export class MessageWindow {
  readonly #source: HistorySource;
  readonly #listeners = new Set<() => void>();
  #state = EMPTY;
  #firstSeq = 0; // the range of seqs in the window, including entries without a row
  #lastSeq = 0;
  #task = 0;

  constructor(source: HistorySource) {
    this.#source = source;
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  readonly getState = (): WindowState => this.#state;

  #set(change: Partial<WindowState>): void {
    this.#state = { ...this.#state, isShifted: false, ...change };
    for (const listener of this.#listeners) listener();
  }

  // jumps

  /** Show the newest messages, or the first unread one after seq `read`. */
  async open(read: number, unread: number): Promise<void> {
    const target = unread > 0 ? "unread" : "end";
    const local = this.#source.listLocal();
    const firstUnread = unread > 0 ? local.findIndex(({ seq }) => seq > read) : -1;
    const hasFirstUnread = firstUnread > 0 && local.length - firstUnread < ENTRIES_MAX / 2;
    const isNear = unread === 0 || hasFirstUnread;
    if (isNear && local.length > 0 && !this.#source.needsHistory) {
      const start = unread === 0 ? local.length - PAGE : Math.min(firstUnread, local.length - PAGE);
      const entries = local.slice(Math.max(0, start - PAGE / 4));
      this.#show({ entries, hasOlder: true, hasNewer: false }, target);
      await this.#addSystemEntries();
      return;
    }
    if (unread > PAGE && read > 0) {
      const isLoaded = await this.#load(() => this.#source.loadAround(read, PAGE), target);
      if (isLoaded) return;
    }
    await this.#showNewest(target);
  }

  /** Show the newest messages. */
  jumpToNewest(): Promise<void> {
    return this.#showNewest("end");
  }

  async #showNewest(target: Target): Promise<void> {
    const local = this.#source.listLocal();
    if (!this.#source.needsHistory && local.length > 0) {
      const entries = local.slice(-PAGE);
      this.#show({ entries, hasOlder: true, hasNewer: false }, target);
      await this.#addSystemEntries();
    } else {
      await this.#load(() => this.#source.loadNewest(PAGE), target);
    }
  }

  /** Show message `seq`; return false if it cannot be loaded. */
  async jumpTo(seq: number): Promise<boolean> {
    if (seq <= this.#source.clearedUpto) return false;
    if (this.#state.entries.some((entry) => entry.seq === seq)) {
      this.#set({ target: seq, jumpCount: this.#state.jumpCount + 1 });
      return true;
    }
    return this.#load(() => this.#source.loadAround(seq, PAGE), seq);
  }

  /** Show the first message at or after a time; return false if there is none. */
  async jumpToTime(timeMs: number): Promise<boolean> {
    const seq = await this.#source.findSeqAt(timeMs);
    return seq !== null && this.jumpTo(seq);
  }

  async #load(read: () => Promise<SourcePage>, target: Target): Promise<boolean> {
    const task = (this.#task += 1);
    this.#set({ loading: "all", error: null });
    try {
      const page = await read();
      if (task === this.#task) this.#show(page, target);
      return true;
    } catch (error) {
      if (task === this.#task) this.#set({ loading: null, error: error as Error });
      return false;
    }
  }

  #show(page: SourcePage, target: Target): void {
    this.#task += 1;
    this.#firstSeq = page.entries[0]?.seq ?? 1;
    this.#lastSeq = page.entries.at(-1)?.seq ?? 0;
    const entries = page.entries.filter(isShown);
    const { hasOlder } = page;
    const { generation, jumpCount } = this.#state;
    this.#set({
      entries,
      hasOlder: hasOlder && this.#firstSeq > this.#source.clearedUpto + 1,
      isLive: !page.hasNewer,
      loading: null,
      error: null,
      target,
      generation: generation + 1,
      jumpCount: jumpCount + 1,
    });
    if (!page.hasNewer) this.refresh();
  }

  /** Load and add the system entries between the messages; the SDK keeps only messages. */
  async #addSystemEntries(): Promise<void> {
    const task = this.#task;
    const page = await this.#source.loadNewest(PAGE).catch(() => null);
    if (page === null || task !== this.#task || !this.#state.isLive) return;
    const notes = page.entries.filter((entry) => isSystem(entry) && entry.seq >= this.#firstSeq);
    for (const note of notes) this.addEntry(note);
  }

  /** Clear an error: load the chat again, or let the list load its next page. */
  async retry(): Promise<void> {
    if (this.#state.entries.length === 0) await this.#showNewest("end");
    else this.#set({ error: null });
  }

  // pages

  /** Add a page of older entries. */
  async loadOlder(): Promise<void> {
    if (this.#state.loading !== null || !this.#state.hasOlder) return;
    const task = this.#task;
    const { clearedUpto } = this.#source;
    this.#set({ loading: "older", error: null });
    try {
      for (let pages = 0; pages < PAGES_MAX; pages += 1) {
        const page = await this.#source.loadBefore(this.#firstSeq, PAGE);
        if (task !== this.#task) return;
        this.#firstSeq = page.entries[0]?.seq ?? this.#firstSeq;
        const added = page.entries.filter(isShown);
        const isAtStart = page.entries.length === 0 || this.#firstSeq <= clearedUpto + 1;
        const hasOlder = page.hasOlder && !isAtStart;
        if (added.length > 0 || !hasOlder) {
          const entries = [...added, ...this.#state.entries];
          this.#set({ entries, hasOlder, loading: null, isShifted: added.length > 0 });
          return;
        }
      }
      this.#set({ loading: null });
    } catch (error) {
      if (task === this.#task) this.#set({ loading: null, error: error as Error });
    }
  }

  /** Add a page of newer entries. */
  async loadNewer(): Promise<void> {
    if (this.#state.loading !== null || this.#state.isLive) return;
    const task = this.#task;
    this.#set({ loading: "newer", error: null });
    try {
      for (let pages = 0; pages < PAGES_MAX; pages += 1) {
        const page = await this.#source.loadAfter(this.#lastSeq, PAGE);
        if (task !== this.#task) return;
        this.#lastSeq = page.entries.at(-1)?.seq ?? this.#lastSeq;
        const added = page.entries.filter(isShown);
        const isLive = !page.hasNewer || page.entries.length === 0;
        if (added.length > 0 || isLive) {
          this.#set({ entries: [...this.#state.entries, ...added], isLive, loading: null });
          if (isLive) this.refresh();
          return;
        }
      }
      this.#set({ loading: null });
    } catch (error) {
      if (task === this.#task) this.#set({ loading: null, error: error as Error });
    }
  }

  /**
   * Remove surplus entries at the end that is farther from the scroll position: the older end if
   * `isInNewerHalf`. Removed entries are loaded again on demand.
   */
  trim(isInNewerHalf: boolean): void {
    const { entries, loading } = this.#state;
    if (entries.length <= ENTRIES_MAX || loading === "all") return;
    if (isInNewerHalf) {
      const remaining = entries.slice(-ENTRIES_MAX);
      this.#firstSeq = remaining[0]?.seq ?? this.#firstSeq;
      this.#set({ entries: remaining, hasOlder: true, isShifted: true });
    } else {
      const remaining = entries.slice(0, ENTRIES_MAX);
      this.#lastSeq = remaining.at(-1)?.seq ?? this.#lastSeq;
      this.#set({ entries: remaining, isLive: false });
    }
  }

  // changes

  /** Apply the current messages of the SDK. */
  refresh(): void {
    this.#removeCleared();
    const { entries, isLive } = this.#state;
    const local = this.#source.listLocal();
    const first = local[0];
    if (first === undefined) return;
    const bySeq = new Map(entries.map((entry) => [entry.seq, entry]));
    const isCovered = (seq: number): boolean =>
      seq >= this.#firstSeq && (isLive || seq <= this.#lastSeq);
    const current = local
      .filter(({ seq }) => isCovered(seq))
      .map((message) => {
        const before = bySeq.get(message.seq);
        return before !== undefined && isSame(before, message) ? before : message;
      });
    const others = entries.filter((entry) => entry.seq < first.seq || isSystem(entry));
    const outside = isLive
      ? []
      : entries.filter((entry) => !isSystem(entry) && entry.seq > (local.at(-1)?.seq ?? 0));
    const next = [...others, ...current, ...outside].sort((a, b) => a.seq - b.seq);
    if (isLive) this.#lastSeq = Math.max(this.#lastSeq, next.at(-1)?.seq ?? 0);
    const isChanged =
      next.length !== entries.length || next.some((entry, index) => entry !== entries[index]);
    if (isChanged) this.#set({ entries: next });
  }

  #removeCleared(): void {
    const { entries, isLive } = this.#state;
    const { clearedUpto } = this.#source;
    if ((entries[0]?.seq ?? Infinity) > clearedUpto) return;
    const remaining = entries.filter(({ seq }) => seq > clearedUpto);
    this.#show({ entries: remaining, hasOlder: false, hasNewer: !isLive }, "end");
  }

  /** Add a new system entry, which the SDK does not keep. */
  addEntry(entry: Message): void {
    const { entries, isLive } = this.#state;
    const lowest = Math.max(this.#firstSeq, this.#source.clearedUpto + 1);
    if (!isShown(entry) || entry.seq < lowest || (!isLive && entry.seq > this.#lastSeq)) return;
    const position = entries.findIndex(({ seq }) => seq >= entry.seq);
    if (entries[position]?.seq === entry.seq) return;
    const index = position < 0 ? entries.length : position;
    this.#set({ entries: entries.toSpliced(index, 0, entry) });
  }

  /** Apply an edit, deletion or reaction to a message that the SDK no longer keeps. */
  applyChange(change: Message): void {
    const { entries } = this.#state;
    const index = entries.findIndex(({ seq }) => seq === change.target);
    const message = entries[index];
    if (message === undefined || (message.rev ?? 0) >= change.seq || message.deleted) return;
    this.#set({ entries: entries.with(index, buildChanged(message, change)) });
  }

  /** Hide expired messages; return the next expiry, in Unix seconds, or `Infinity`. */
  expire(nowS: number): number {
    const expiring = this.#state.entries.filter((entry) => {
      return entry.expires_at != null && !entry.deleted;
    });
    const hasExpired = ({ expires_at: expiryS }: Message): boolean => (expiryS ?? Infinity) <= nowS;
    this.hide(expiring.filter(hasExpired).map(({ seq }) => seq));
    const remaining = expiring.filter((entry) => !hasExpired(entry));
    const expiries = remaining.map(({ expires_at: expiryS }) => expiryS ?? 0);
    return Math.min(...expiries, Infinity);
  }

  /** Show messages as deleted. */
  hide(seqs: readonly number[]): void {
    const hidden = new Set(seqs);
    const { entries } = this.#state;
    if (!entries.some(({ seq }) => hidden.has(seq))) return;
    this.#set({
      entries: entries.map((entry) => (hidden.has(entry.seq) ? buildTombstone(entry) : entry)),
    });
  }
}

function isSame(a: Message, b: Message): boolean {
  return a.mid === b.mid && (a.rev ?? 0) === (b.rev ?? 0) && a.deleted === b.deleted;
}

function buildTombstone(message: Message, rev = message.rev ?? 0): Message {
  const { attachments: _, reactions: __, reply_to: ___, ...others } = message;
  return { ...others, body: "", deleted: true, rev };
}

function buildChanged(message: Message, change: Message): Message {
  switch (change.kind) {
    case "edit":
      return { ...message, body: change.body, edited_ts: change.ts, rev: change.seq };
    case "delete":
      return buildTombstone(message, change.seq);
    case "reaction": {
      const { [change.sender]: _, ...others } = message.reactions ?? {};
      const reactions = change.body === "" ? others : { ...others, [change.sender]: change.body };
      return { ...message, reactions, rev: change.seq };
    }
    default:
      return message;
  }
}
