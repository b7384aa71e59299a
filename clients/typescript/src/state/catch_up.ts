// Backfill of missing entries: gaps after a disconnect, and log comparison in a new epoch.
//
// After a `too_long` or `reset`, the stored entries of chats that are not in the snapshot are read
// again: only the snapshot and the history have the messages that the user deleted for themselves.
//
// At most `REQUESTS_MAX` page requests are open at a time. A gap that cannot be read in
// `ATTEMPTS_MAX` attempts, or that exceeds `fillMax` entries, is reported as `skipped`. Therefore,
// an unavailable storage tier delays the new messages of a chat by seconds only.

import type { HistoryPage } from "../generated/frames.js";
import type { ChatState } from "./chat.js";
import type { ChatError } from "./errors.js";
import type { ChatEvent } from "./events.js";
import type { Entry, Fields } from "./model.js";

const REQUESTS_MAX = 2;
const ATTEMPTS_MAX = 5;
const PAGE = 200;
const RETRY_S = 0.5;

/** Sends a request on the current connection only. */
export type SendRequest = (
  fields: Fields,
  onAnswer: (frame: Fields, nowS: number) => void,
  onError: (error: ChatError, nowS: number) => void,
  nowS: number,
) => void;

/** Delivers events to the application. */
export type Emit = (events: Iterable<ChatEvent>) => void;

interface Job {
  readonly chat: ChatState;
  isForced: boolean; // send one request even if no gap is known
  isRequested: boolean;
  before: number | null; // where the comparison continues
  refreshBefore: number | null; // stored entries below this seq must be read again
  read: number;
  attempts: number;
  notBeforeS: number;
  waitsFor: number | null; // the gap cannot be resolved until this seq has been pushed
}

/** The chats of one device with missing entries. */
export class CatchUp {
  readonly #sendRequest: SendRequest;
  readonly #emit: Emit;
  readonly #touch: (chat: ChatState) => void;
  readonly #fillMax: number;
  readonly #jobs = new Map<string, Job>();

  constructor(
    sendRequest: SendRequest,
    emit: Emit,
    touch: (chat: ChatState) => void,
    fillMax: number,
  ) {
    this.#sendRequest = sendRequest;
    this.#emit = emit;
    this.#touch = touch;
    this.#fillMax = fillMax;
  }

  /** Schedule a backfill of `chat` if it is incomplete; if forced, refresh its entries too. */
  schedule(chat: ChatState, isForced = false): void {
    if (!(chat.log.isUnverified || chat.log.hasGap || isForced)) return;
    let job = this.#jobs.get(chat.id);
    if (job === undefined) {
      const start = { isRequested: false, before: null, read: 0, attempts: 0, notBeforeS: 0 };
      job = { chat, isForced, ...start, refreshBefore: null, waitsFor: null };
      this.#jobs.set(chat.id, job);
    }
    if (isForced) {
      job.isForced = true;
      job.refreshBefore = Math.max(chat.log.newest, chat.log.shown ?? 0) + 1;
    }
    if (job.waitsFor !== null && chat.log.pushed >= job.waitsFor) {
      job.waitsFor = null;
      job.notBeforeS = 0;
    }
  }

  /** Return whether a backfill of `chat` is pending. */
  isScheduled(chat: ChatState): boolean {
    return this.#jobs.has(chat.id);
  }

  /** Restart the backfill of a chat in a new epoch. */
  restart(chat: ChatState, isForced = false): void {
    this.#jobs.delete(chat.id);
    this.schedule(chat, isForced);
  }

  /** Cancel the backfill of a chat that was evicted. */
  cancel(chat: ChatState): void {
    this.#jobs.delete(chat.id);
  }

  /** Reset the requests in flight; they will not be answered. */
  handleDisconnect(): void {
    for (const job of this.#jobs.values()) job.isRequested = false;
  }

  /** Return the times at which further pages may be requested. */
  listDueTimes(): number[] {
    const jobs = [...this.#jobs.values()].filter(({ isRequested }) => !isRequested);
    return jobs.map(({ notBeforeS }) => notBeforeS);
  }

  /** Request the next pages. */
  requestPages(nowS: number): void {
    let requested = [...this.#jobs.values()].filter(({ isRequested }) => isRequested).length;
    for (const job of [...this.#jobs.values()]) {
      if (requested >= REQUESTS_MAX) break;
      if (job.isRequested || job.notBeforeS > nowS) continue;
      const fields = this.#nextRequest(job);
      if (fields === null) {
        this.#jobs.delete(job.chat.id);
        continue;
      }
      requested += 1;
      job.isRequested = true;
      this.#sendRequest(
        fields,
        (frame, when) => this.#onPage(job, fields, frame as unknown as HistoryPage, when),
        (error, when) => this.#onError(job, error, when),
        nowS,
      );
    }
  }

  #nextRequest(job: Job): Fields | null {
    const { log } = job.chat;
    const page: Fields = { type: "history", chat: job.chat.id, limit: PAGE };
    if (log.isUnverified) return job.before === null ? page : { ...page, before: job.before };
    if (log.shown === null) return null;
    if (log.hasGap || job.isForced) {
      if (log.top - log.shown > this.#fillMax) this.#skip(job, log.top - this.#fillMax);
      return { ...page, after: log.shown };
    }
    const { refreshBefore } = job;
    const isStale = refreshBefore !== null && log.bottom > 0 && log.bottom < refreshBefore;
    return isStale ? { ...page, before: refreshBefore } : null;
  }

  #onPage(job: Job, request: Fields, frame: HistoryPage, nowS: number): void {
    if (this.#jobs.get(job.chat.id) !== job) return; // requested before a new epoch
    job.isRequested = false;
    this.#touch(job.chat);
    const { messages, more = false } = frame;
    if (job.chat.log.isUnverified) this.#compare(job, messages, more);
    else if ("after" in request) this.#fill(job, messages, nowS, more);
    else this.#refresh(job, messages, more);
  }

  #onError(job: Job, error: ChatError, nowS: number): void {
    if (this.#jobs.get(job.chat.id) !== job) return;
    job.isRequested = false;
    const { log } = job.chat;
    // The user may have left, but events of the former membership are still pending.
    const isPending = log.hasGap && log.findGapEnd() >= log.pushed;
    if (error.isTemporary || isPending)
      this.#scheduleRetry(job, nowS, (error.retryAfterMs ?? 0) / 1000);
    else this.#abort(job);
  }

  #fill(job: Job, page: Entry[], nowS: number, hasMore: boolean): void {
    const { log } = job.chat;
    const before = log.delivered;
    for (const entry of page) log.put(entry);
    this.#emit(job.chat.releaseEvents());
    // The user cannot read the entries before the page, because they joined later. But events of an
    // earlier membership may have delivered some of them, or will deliver them in order.
    const first = page[0];
    while (first !== undefined && log.hasGap && log.delivered < first.seq - 1) {
      const upto = log.findGapEnd();
      if (upto >= log.pushed) {
        job.waitsFor = upto + 1;
        break;
      }
      this.#skip(job, upto);
      this.#emit(job.chat.releaseEvents());
    }
    job.isForced = hasMore && page.length > 0;
    if (log.delivered > before) job.attempts = 0;
    else if (log.hasGap) this.#scheduleRetry(job, nowS, 0);
  }

  #refresh(job: Job, page: Entry[], hasOlder: boolean): void {
    job.attempts = 0;
    job.refreshBefore = hasOlder ? (page[0]?.seq ?? null) : null;
    this.#emit(job.chat.refresh(page));
  }

  #compare(job: Job, page: Entry[], hasOlder: boolean): void {
    const { chat } = job;
    job.read += page.length;
    let result = chat.log.verify(page, hasOlder);
    if (result === null && job.read >= this.#fillMax) result = chat.log.abortVerification();
    if (result === null) {
      job.before = page[0]?.seq ?? null;
      return;
    }
    job.attempts = 0;
    this.#emit(chat.applyVerification(result));
  }

  #scheduleRetry(job: Job, nowS: number, adviceS: number): void {
    job.attempts += 1;
    job.notBeforeS = nowS + Math.max(adviceS, RETRY_S * 2 ** job.attempts);
    if (job.attempts >= ATTEMPTS_MAX) this.#abort(job);
  }

  #abort(job: Job): void {
    const { chat } = job;
    job.isForced = false;
    job.refreshBefore = null;
    job.attempts = 0;
    if (chat.log.isUnverified) this.#emit(chat.applyVerification(chat.log.abortVerification()));
    else if (chat.log.hasGap) this.#skip(job, chat.log.findGapEnd());
    chat.needsHistory = true;
    this.#touch(chat);
    this.#emit(chat.releaseEvents());
  }

  #skip(job: Job, upto: number): void {
    const { log } = job.chat;
    this.#emit([{ type: "skipped", chat: job.chat.id, after: log.delivered, upto }]);
    log.skip(upto);
    job.chat.needsHistory = true;
  }
}
