// Message log of one chat: entries, the current version of each message, the last delivered seq.
//
// Invariants: `shown`, the last delivered seq, advances one entry at a time, or jumps over a range
// (`skip`). Entries above `shown` wait until the gap is filled and are not visible. Only the newest
// `keptMax` entries are kept. In a new epoch, delivered entries are invisible until a page from the
// server contains one of them; all entries before the newest such entry match, too.

import {
  applyChange,
  applyExpiry,
  buildTombstone,
  type Entry,
  getRev,
  isMessage,
  isMessageChange,
  sortAscending,
} from "./model.js";

const IDENTITIES_SAVED = 20;

/** The result of a comparison with the server after a new epoch. */
export interface VerificationResult {
  /** The entries up to this seq are also on the server. */
  matchSeq: number;
  withdrawn: number[];
  /** The server has fewer entries than were delivered. */
  isTruncated: boolean;
  /** False: entries up to `matchSeq` may have changed, too. */
  isExact: boolean;
}

/**
 * Return the identity of an entry: its id and time.
 *
 * A membership entry that the server lost and created again has the same id but another time.
 */
function getIdentity(entry: Entry): string {
  return `${entry.mid}:${entry.ts}`;
}

/** The entries of one chat. */
export class ChatLog {
  /** Last delivered seq; null: nothing delivered yet. */
  shown: number | null = null;
  /** The newest known seq. */
  top = 0;
  /** Later events of the chat have a higher seq. */
  pushed = 0;
  isUnverified = false;
  readonly #keptMax: number;
  readonly #entries = new Map<number, Entry>();
  readonly #changes = new Map<number, Set<number>>(); // seq of a message → seqs of its changes
  readonly #hidden = new Set<number>();
  #clearedUpto = 0;
  readonly #previousIds = new Map<number, string>(); // seq → identity, of the previous epoch
  #previousEntries = new Map<number, Entry>();
  readonly #previousHidden = new Set<number>();
  #newestCompared: number | null = null; // top of the first page compared

  constructor(keptMax: number) {
    this.#keptMax = keptMax;
  }

  // visible entries

  /** The oldest seq kept; 0 if there is none. */
  get bottom(): number {
    let lowest = 0;
    for (const seq of this.#entries.keys()) if (lowest === 0 || seq < lowest) lowest = seq;
    return lowest;
  }

  /** The newest seq kept, delivered or not; 0 if there is none. */
  get newest(): number {
    let highest = 0;
    for (const seq of this.#entries.keys()) highest = Math.max(highest, seq);
    return highest;
  }

  /** Return the current version of an entry; null if it is not kept or not delivered. */
  find(seq: number): Entry | null {
    let entry = this.#entries.get(seq);
    if (entry === undefined || (this.shown !== null && seq > this.shown)) return null;
    for (const change of sortAscending(this.#changes.get(seq) ?? [])) {
      if (this.shown === null || change <= this.shown) {
        entry = applyChange(entry, this.#getEntry(change));
      }
    }
    return this.isHidden(seq) ? buildTombstone(entry, getRev(entry)) : entry;
  }

  /** Return the ref of a kept entry, in a new epoch that of the entry known before. */
  findRef(seq: number): string | undefined {
    return (this.#previousEntries.get(seq) ?? this.#entries.get(seq))?.ref;
  }

  /** Return all visible entries in order; with `nowS`, without texts that expired before it. */
  entries(nowS?: number): Entry[] {
    const visible = sortAscending(this.#entries.keys())
      .map((seq) => this.find(seq))
      .filter((entry) => entry !== null);
    return nowS === undefined ? visible : visible.map((entry) => applyExpiry(entry, nowS));
  }

  /** Return the visible messages that the user has not cleared, like `entries`. */
  messages(nowS?: number): Entry[] {
    return this.entries(nowS).filter((entry) => isMessage(entry) && entry.seq > this.#clearedUpto);
  }

  /** Return the newest visible message; null if none is kept. */
  findNewestMessage(): Entry | null {
    let newest = this.#clearedUpto;
    for (const [seq, entry] of this.#entries) {
      const isVisible = this.shown === null || seq <= this.shown;
      if (seq > newest && isVisible && isMessage(entry)) newest = seq;
    }
    return newest > this.#clearedUpto ? this.find(newest) : null;
  }

  /** Count the entries above `after` that do not count as unread. */
  countIgnored(after: number): number {
    let count = 0;
    for (const [seq, entry] of this.#entries) if (seq > after && this.#isIgnored(entry)) count += 1;
    return count;
  }

  #isIgnored(entry: Entry): boolean {
    const isGone = entry.deleted === true || this.isHidden(entry.seq);
    return isGone || !isMessage(entry) || this.#isDeletedLater(entry.seq);
  }

  #isDeletedLater(seq: number): boolean {
    const changes = [...(this.#changes.get(seq) ?? [])];
    return changes.some((change) => this.#getEntry(change).kind === "delete");
  }

  /** Count the messages with seq `first` to `last` that an entry above `since` deletes. */
  countDeletedSince(since: number, first: number, last: number): number {
    const deleted = new Set<number>();
    for (const [seq, entry] of this.#entries) {
      if (seq > since && entry.kind === "delete" && entry.target != null) deleted.add(entry.target);
    }
    return [...deleted].filter((seq) => first <= seq && seq <= last).length;
  }

  #getEntry(seq: number): Entry {
    const entry = this.#entries.get(seq);
    if (entry === undefined) throw new Error(`entry ${seq} is not kept`);
    return entry;
  }

  // input

  /** Start delivery after seq `startSeq`, if nothing was delivered yet. */
  startAfter(startSeq: number): void {
    if (this.shown !== null) return;
    let adjacent = startSeq;
    while (this.#entries.has(adjacent)) adjacent -= 1;
    for (const seq of [...this.#entries.keys()]) if (seq <= adjacent) this.#evict(seq);
    this.shown = startSeq;
    this.recordPushed(startSeq);
  }

  /** Undo `startAfter(startSeq)` if no entry was stored since. */
  undoStart(startSeq: number): void {
    if (this.shown === startSeq && this.#entries.size === 0 && !this.isUnverified) {
      this.shown = null;
      this.top = this.pushed = 0;
    }
  }

  /** Record that all entries pushed from now on have a seq above `seq`. */
  recordPushed(seq: number): void {
    this.pushed = Math.max(this.pushed, seq);
    this.top = Math.max(this.top, seq);
  }

  /** Return whether storing entry `seq` leaves no gap below the delivered entries. */
  isAdjacent(seq: number): boolean {
    if (this.shown === null || this.isUnverified || seq > this.shown) return true;
    return seq >= (this.bottom || this.shown + 1) - 1;
  }

  /** Store an entry, unless a newer copy is stored. */
  put(entry: Entry): void {
    this.top = Math.max(this.top, entry.seq);
    const known = this.#entries.get(entry.seq);
    if (known !== undefined && !isNewer(entry, known)) return;
    this.#entries.set(entry.seq, entry);
    if (isMessageChange(entry) && entry.target != null) {
      const changes = this.#changes.get(entry.target);
      if (changes === undefined) this.#changes.set(entry.target, new Set([entry.seq]));
      else changes.add(entry.seq);
    }
  }

  /** Return whether the user deleted a kept message for themselves, or cleared it. */
  isHidden(seq: number): boolean {
    return seq <= this.#clearedUpto || this.#hidden.has(seq);
  }

  /** Return whether the server's copy shows that the user deleted a visible message. */
  isHiddenBy(copy: Entry): boolean {
    const stored = this.find(copy.seq);
    const isDeleted = copy.deleted === true && getRev(copy) <= (this.shown ?? 0);
    return isDeleted && stored !== null && stored.deleted !== true;
  }

  /** Show these messages as deleted, even if an earlier page has their text. */
  hide(seqs: Iterable<number>): void {
    for (const seq of seqs) this.#hidden.add(seq);
  }

  /** Evict the delivered entries up to seq `upto`, and show no message up to it again. */
  clear(upto: number): void {
    this.#clearedUpto = upto;
    const end = Math.min(upto, this.shown ?? upto);
    for (const seq of [...this.#entries.keys()]) if (seq <= end) this.#evict(seq);
  }

  /**
   * Store a page of history if it is adjacent to the stored entries.
   *
   * A page requested with `before` counts as adjacent to entry `before`, even if seqs between them
   * are missing: the user has no access to the missing entries.
   */
  putPage(page: Entry[], before: number | null = null): void {
    const last = page.at(-1);
    if (last === undefined || this.isUnverified) return;
    const isAdjacent =
      this.#entries.size > 0
        ? Math.max(last.seq, (before ?? 0) - 1) >= this.bottom - 1
        : this.shown === null || last.seq >= this.shown;
    if (!isAdjacent) return;
    for (const entry of page) this.put(entry);
    if (this.shown === null || !this.hasGap) this.trim();
  }

  /** Advance `shown` to the next gap; call `onPassed` for each entry that it passes. */
  advance(onPassed: (entry: Entry) => void): void {
    while (!this.isUnverified && this.shown !== null) {
      const entry: Entry | undefined = this.#entries.get(this.shown + 1);
      if (entry === undefined) break;
      this.shown += 1;
      onPassed(entry);
    }
    this.trim();
  }

  /** Evict cleared entries, and the oldest ones, so that at most `keptMax` are kept. */
  trim(): void {
    if (this.#clearedUpto > 0) this.clear(this.#clearedUpto);
    const surplus = this.#entries.size - this.#keptMax;
    if (surplus <= 0) return;
    for (const seq of sortAscending(this.#entries.keys()).slice(0, surplus)) this.#evict(seq);
  }

  #evict(seq: number): void {
    const entry = this.#getEntry(seq);
    this.#entries.delete(seq);
    this.#hidden.delete(seq);
    this.#changes.delete(seq);
    if (entry.target != null) this.#changes.get(entry.target)?.delete(seq);
  }

  // gaps

  /** True if entries after `shown` are missing. */
  get hasGap(): boolean {
    return !this.isUnverified && this.shown !== null && this.shown < this.top;
  }

  /** The last delivered seq. */
  get delivered(): number {
    if (this.shown === null) throw new Error("nothing was delivered yet");
    return this.shown;
  }

  /** Set `shown` to `upto`, and evict all entries up to it, to leave no gap. */
  skip(upto: number): void {
    for (const seq of [...this.#entries.keys()]) if (seq <= upto) this.#evict(seq);
    this.shown = Math.max(this.delivered, upto);
    this.top = Math.max(this.top, this.shown);
  }

  /** Return the last seq of the next gap. */
  findGapEnd(): number {
    const waiting = [...this.#entries.keys()].filter((seq) => seq > this.delivered);
    return waiting.length > 0 ? Math.min(...waiting) - 1 : this.top;
  }

  // new epoch

  /** Mark all entries as unverified: the server may have lost the end of the log. */
  markUnverified(): void {
    if (this.shown !== null && !this.isUnverified) {
      for (const [seq, entry] of this.#entries) this.#previousIds.set(seq, getIdentity(entry));
      this.#previousEntries = new Map(this.#entries);
      for (const seq of this.#hidden) this.#previousHidden.add(seq);
      this.isUnverified = true;
    }
    this.#entries.clear();
    this.#changes.clear();
    this.#hidden.clear();
    this.#newestCompared = null;
    this.top = this.pushed = 0;
  }

  /**
   * Compare the log with a page from the server: first the newest page, then older pages.
   *
   * Return null if the next older page is needed.
   */
  verify(page: Entry[], hasOlder: boolean): VerificationResult | null {
    this.#newestCompared ??= page.at(-1)?.seq ?? 0;
    for (const entry of page) this.put(entry);
    const matches = page
      .filter((entry) => this.#previousIds.get(entry.seq) === getIdentity(entry))
      .map(({ seq }) => seq);
    if (matches.length > 0) return this.#finishVerification(Math.max(...matches), true);
    const seqs = [...this.#previousIds.keys()];
    const oldest = seqs.length > 0 ? Math.min(...seqs) : (this.shown ?? 0) + 1;
    const first = page[0]?.seq ?? 1;
    if (page.length > 0 && hasOlder && first > oldest) return null;
    // No entry whose identity is known matches the server's. Older entries cannot be compared;
    // they are assumed to be unchanged.
    const matchSeq = Math.min(oldest - 1, this.#newestCompared, this.#findFirstMoved() - 1);
    return this.#finishVerification(Math.max(matchSeq, first - 1), matchSeq <= 0);
  }

  /**
   * Return the lowest seq of an entry that the server lost and created again.
   *
   * Such an entry has the id of an entry of the previous epoch, but another seq or time. The server
   * lost all entries from that seq on. If there is no such entry, return `top + 1`.
   */
  #findFirstMoved(): number {
    const mids = new Set([...this.#previousIds.values()].map((id) => id.split(":")[0]));
    const moved = [...this.#entries].filter(([, entry]) => mids.has(entry.mid));
    return moved.length > 0 ? Math.min(...moved.map(([seq]) => seq)) : this.top + 1;
  }

  #finishVerification(matchSeq: number, isExact: boolean): VerificationResult {
    const shown = this.delivered;
    const lost = [...this.#previousIds.keys()].filter((s) => matchSeq < s && s <= shown);
    const withdrawn = sortAscending(lost);
    this.#restoreEntries(matchSeq);
    const isTruncated = matchSeq < shown;
    this.shown = Math.min(shown, matchSeq);
    this.isUnverified = false;
    this.#previousIds.clear();
    this.#previousEntries.clear();
    this.#previousHidden.clear();
    return { matchSeq, withdrawn, isTruncated, isExact };
  }

  /** Restore the previous entries up to `matchSeq`, except copies that contain a lost change. */
  #restoreEntries(matchSeq: number): void {
    const seqs = sortAscending([...this.#previousEntries.keys()].filter((seq) => seq <= matchSeq));
    for (const seq of seqs.reverse()) {
      const entry = this.#previousEntries.get(seq) as Entry;
      if (this.#previousHidden.has(seq)) this.#hidden.add(seq);
      if (getRev(entry) <= matchSeq) this.put(entry);
      else if (!this.#entries.has(seq)) break;
    }
  }

  /** End the comparison without a result; continue with the entries of the new epoch. */
  abortVerification(): VerificationResult {
    const first = this.bottom || this.top + 1;
    const result = this.#finishVerification(0, false);
    this.shown = first - 1;
    return { ...result, matchSeq: this.shown, isTruncated: true };
  }

  // persistence

  /** Return `[seq, identity]` of the newest entries up to `upto`, to compare them later. */
  getNewestIdentities(upto: number): [number, string][] {
    const known = new Map(this.#previousIds);
    if (!this.isUnverified) {
      for (const [seq, entry] of this.#entries) known.set(seq, getIdentity(entry));
    }
    const newest = sortAscending([...known.keys()].filter((seq) => seq <= upto));
    const seqs = newest.slice(-IDENTITIES_SAVED);
    return seqs.map((seq) => [seq, known.get(seq) as string]);
  }

  /** Return the newest delivered entries up to `upto`, and which of them are hidden. */
  saveEntries(upto: number, entriesMax: number): { entries: Entry[]; hidden: number[] } {
    const kept = this.isUnverified ? this.#previousEntries : this.#entries;
    const seqs = sortAscending([...kept.keys()].filter((seq) => seq <= upto)).slice(-entriesMax);
    const hidden = new Set([...this.#hidden, ...this.#previousHidden]);
    return {
      entries: seqs.map((seq) => kept.get(seq) as Entry),
      hidden: seqs.filter((seq) => hidden.has(seq)),
    };
  }

  /** Put delivered entries from the store; they have no gap up to `shown`. */
  putCached(entries: Iterable<Entry>, hidden: Iterable<number>): void {
    for (const entry of entries) this.put(entry);
    this.hide(hidden);
    this.trim();
  }

  /** Replace entries of the log with newer copies. */
  refresh(entries: Iterable<Entry>): void {
    for (const entry of entries) if (this.#entries.has(entry.seq)) this.put(entry);
  }

  /** Restore the delivery position of an earlier process. */
  restore(shown: number, top: number, mids: Iterable<readonly [number, string]>): void {
    this.shown = this.pushed = shown;
    this.top = top;
    this.#previousIds.clear();
    for (const [seq, identity] of mids) this.#previousIds.set(seq, identity);
  }
}

function isNewer(entry: Entry, known: Entry): boolean {
  const [a, b] = [getRev(entry), getRev(known)];
  return a === b ? entry.deleted === true && known.deleted !== true : a > b;
}
