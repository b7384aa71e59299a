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
const PAGES_MAX = 10; // pages without visible entries that are read in a row
const SYSTEM_KINDS: ReadonlySet<string> = new Set(["member", "update", "pin"]);
const AMENDING_KINDS: ReadonlySet<string> = new Set(["edit", "delete", "reaction", "unpin"]);

/** A state of the window. */
export interface WindowState {
  readonly entries: readonly Message[];
  readonly hasOlder: boolean;
  /** The window ends with the newest message. */
  readonly isLive: boolean;
  readonly loading: "older" | "newer" | "all" | null;
  readonly error: Error | null;
  /** The last update added or removed entries at the start. */
  readonly isShifted: boolean;
  /** Increases when all entries are replaced. */
  readonly generation: number;
  /** Increases when the list has to scroll to `target`. */
  readonly place: number;
  /** Scroll target after a jump: a message, the first unread message, or the newest. */
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
  place: 0,
  target: "end",
};

/** Return whether an entry is shown as a row. */
export function isShown(entry: Message): boolean {
  return !AMENDING_KINDS.has(entry.kind);
}

/** Return whether an entry is a note about the chat rather than a message. */
export function isSystem(entry: Message): boolean {
  return SYSTEM_KINDS.has(entry.kind);
}

/** A window of one chat. */
export class MessageWindow {
  readonly #source: HistorySource;
  readonly #listeners = new Set<() => void>();
  #state = EMPTY;
  #from = 0; // the range of seqs that the window covers, including hidden entries
  #to = 0;
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

  // places

  /** Show the newest messages, or the first unread one after seq `read`. */
  async open(read: number, unread: number): Promise<void> {
    const target = unread > 0 ? "unread" : "end";
    const kept = this.#source.kept();
    const firstUnread = unread > 0 ? kept.findIndex(({ seq }) => seq > read) : -1;
    const isNear = unread === 0 || (firstUnread > 0 && kept.length - firstUnread < ENTRIES_MAX / 2);
    if (isNear && kept.length > 0 && !this.#source.needsHistory) {
      const start = unread === 0 ? kept.length - PAGE : Math.min(firstUnread, kept.length - PAGE);
      const entries = kept.slice(Math.max(0, start - PAGE / 4));
      this.#show({ entries, hasOlder: true, hasNewer: false }, target);
      await this.#addSystemEntries();
      return;
    }
    if (unread > PAGE && read > 0) {
      const isThere = await this.#load(() => this.#source.loadAround(read, PAGE), target);
      if (isThere) return;
    }
    await this.#showNewest(target);
  }

  /** Show the newest messages. */
  jumpToNewest(): Promise<void> {
    return this.#showNewest("end");
  }

  async #showNewest(target: Target): Promise<void> {
    const kept = this.#source.kept();
    if (!this.#source.needsHistory && kept.length > 0) {
      const entries = kept.slice(-PAGE);
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
      this.#set({ target: seq, place: this.#state.place + 1 });
      return true;
    }
    return this.#load(() => this.#source.loadAround(seq, PAGE), seq);
  }

  /** Show the first message at or after a time; return false if there is none. */
  async jumpToTime(timeMs: number): Promise<boolean> {
    const seq = await this.#source.findAt(timeMs);
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
    this.#from = page.entries[0]?.seq ?? 1;
    this.#to = page.entries.at(-1)?.seq ?? 0;
    const entries = page.entries.filter(isShown);
    const { hasOlder } = page;
    const { generation, place } = this.#state;
    this.#set({
      entries,
      hasOlder: hasOlder && this.#from > this.#source.clearedUpto + 1,
      isLive: !page.hasNewer,
      loading: null,
      error: null,
      target,
      generation: generation + 1,
      place: place + 1,
    });
    if (!page.hasNewer) this.refresh();
  }

  /** Load and add the system entries between the messages; the SDK keeps only messages. */
  async #addSystemEntries(): Promise<void> {
    const task = this.#task;
    const page = await this.#source.loadNewest(PAGE).catch(() => null);
    if (page === null || task !== this.#task || !this.#state.isLive) return;
    const notes = page.entries.filter((entry) => isSystem(entry) && entry.seq >= this.#from);
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
        const page = await this.#source.loadBefore(this.#from, PAGE);
        if (task !== this.#task) return;
        this.#from = page.entries[0]?.seq ?? this.#from;
        const added = page.entries.filter(isShown);
        const hasOlder = page.hasOlder && page.entries.length > 0 && this.#from > clearedUpto + 1;
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
        const page = await this.#source.loadAfter(this.#to, PAGE);
        if (task !== this.#task) return;
        this.#to = page.entries.at(-1)?.seq ?? this.#to;
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
      const kept = entries.slice(-ENTRIES_MAX);
      this.#from = kept[0]?.seq ?? this.#from;
      this.#set({ entries: kept, hasOlder: true, isShifted: true });
    } else {
      const kept = entries.slice(0, ENTRIES_MAX);
      this.#to = kept.at(-1)?.seq ?? this.#to;
      this.#set({ entries: kept, isLive: false });
    }
  }

  // changes

  /** Apply the current messages of the SDK. */
  refresh(): void {
    this.#dropCleared();
    const { entries, isLive } = this.#state;
    const kept = this.#source.kept();
    const first = kept[0];
    if (first === undefined) return;
    const known = new Map(entries.map((entry) => [entry.seq, entry]));
    const isCovered = (seq: number): boolean => seq >= this.#from && (isLive || seq <= this.#to);
    const current = kept
      .filter(({ seq }) => isCovered(seq))
      .map((message) => {
        const before = known.get(message.seq);
        return before !== undefined && isSame(before, message) ? before : message;
      });
    const others = entries.filter((entry) => entry.seq < first.seq || isSystem(entry));
    const outside = isLive
      ? []
      : entries.filter((entry) => !isSystem(entry) && entry.seq > (kept.at(-1)?.seq ?? 0));
    const next = [...others, ...current, ...outside].sort((a, b) => a.seq - b.seq);
    if (isLive) this.#to = Math.max(this.#to, next.at(-1)?.seq ?? 0);
    const isChanged =
      next.length !== entries.length || next.some((entry, index) => entry !== entries[index]);
    if (isChanged) this.#set({ entries: next });
  }

  #dropCleared(): void {
    const { entries, isLive } = this.#state;
    const { clearedUpto } = this.#source;
    if ((entries[0]?.seq ?? Infinity) > clearedUpto) return;
    const left = entries.filter(({ seq }) => seq > clearedUpto);
    this.#show({ entries: left, hasOlder: false, hasNewer: !isLive }, "end");
  }

  /** Add a new system entry, which the SDK does not keep. */
  addEntry(entry: Message): void {
    const { entries, isLive } = this.#state;
    const lowest = Math.max(this.#from, this.#source.clearedUpto + 1);
    if (!isShown(entry) || entry.seq < lowest || (!isLive && entry.seq > this.#to)) return;
    const at = entries.findIndex(({ seq }) => seq >= entry.seq);
    if (entries[at]?.seq === entry.seq) return;
    const index = at < 0 ? entries.length : at;
    this.#set({ entries: entries.toSpliced(index, 0, entry) });
  }

  /** Apply an edit, deletion or reaction to a message that the SDK no longer keeps. */
  applyChange(change: Message): void {
    const { entries } = this.#state;
    const index = entries.findIndex(({ seq }) => seq === change.target);
    const message = entries[index];
    if (message === undefined || (message.rev ?? 0) >= change.seq || message.deleted) return;
    this.#set({ entries: entries.with(index, changed(message, change)) });
  }

  /** Hide expired messages; return when the next message expires, in Unix seconds. */
  expire(nowS: number): number {
    const ending = this.#state.entries.filter((each) => each.expires_at != null && !each.deleted);
    const isOver = ({ expires_at: at }: Message): boolean => (at ?? Infinity) <= nowS;
    this.hide(ending.filter(isOver).map(({ seq }) => seq));
    const left = ending.filter((entry) => !isOver(entry)).map(({ expires_at: at }) => at ?? 0);
    return Math.min(...left, Infinity);
  }

  /** Show messages as deleted. */
  hide(seqs: readonly number[]): void {
    const gone = new Set(seqs);
    const { entries } = this.#state;
    if (!entries.some(({ seq }) => gone.has(seq))) return;
    this.#set({
      entries: entries.map((entry) => (gone.has(entry.seq) ? withoutContent(entry) : entry)),
    });
  }
}

function isSame(a: Message, b: Message): boolean {
  return a.mid === b.mid && (a.rev ?? 0) === (b.rev ?? 0) && a.deleted === b.deleted;
}

function withoutContent(message: Message, rev = message.rev ?? 0): Message {
  const { attachments: _, reactions: __, reply_to: ___, ...others } = message;
  return { ...others, body: "", deleted: true, rev };
}

function changed(message: Message, change: Message): Message {
  switch (change.kind) {
    case "edit":
      return { ...message, body: change.body, edited_ts: change.ts, rev: change.seq };
    case "delete":
      return withoutContent(message, change.seq);
    case "reaction": {
      const { [change.sender]: _, ...others } = message.reactions ?? {};
      const reactions = change.body === "" ? others : { ...others, [change.sender]: change.body };
      return { ...message, reactions, rev: change.seq };
    }
    default:
      return message;
  }
}
