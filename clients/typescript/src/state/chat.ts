// State of one chat on a device: info, members, message log and read marks.

import type { ChatInfo, ChatSummary, Marks as MarksFields } from "../generated/frames.js";
import type { Bounds } from "./bounds.js";
import { ChatLog, type VerificationResult } from "./chat_log.js";
import type { ChatEvent } from "./events.js";
import { type Entry, isMessage, isMessageChange, Marks, MUTE_ENDED } from "./model.js";

/** The stored values of a chat. Messages are stored separately. */
export interface SavedChat {
  kind: string;
  top: number;
  read: number;
  unread: number;
  name: string | null;
  members: Record<string, string> | null;
  slowS: number;
  retentionS: number;
  muted: Record<string, number>;
  marks: Record<string, [number, number]>; // user → read, received
  isLarge: boolean;
  isEnded: boolean;
  needsHistory: boolean;
  topic?: string | null;
  picture?: string | null;
  clearedUpto?: number;
}

/** The unread count of the chat list: messages after seq `read`, up to seq `top`. */
interface UnreadCount {
  read: number;
  top: number;
  unread: number;
}

/** Return the unread count without cleared messages; approximate if only some are cleared. */
function omitCleared({ read, top, unread }: UnreadCount, clearedUpto: number): UnreadCount {
  return { read, top, unread: Math.min(unread, Math.max(0, top - clearedUpto)) };
}

/** A chat that the client has loaded. */
export class ChatState {
  readonly id: string;
  kind: string;
  name: string | null = null;
  /** The topic of a group; null: it has none, or it is not loaded. */
  topic: string | null = null;
  /** The id of a group's picture, see `GET /v1/chats/{chat}/picture`. */
  picture: string | null = null;
  /** User → role; null: not loaded. */
  members: Record<string, string> | null = null;
  /** Minimum seconds between two messages of a member. */
  slowS = 0;
  /** Message lifetime in seconds; 0: forever. */
  retentionS = 0;
  /** User → end of the mute in Unix seconds; 0: forever. */
  muted: Record<string, number> = {};
  /** The newest message, from the chat list. */
  last: Entry | null = null;
  isLarge = false;
  /** True if the newest entry removed the user from the chat. */
  isLeft = false;
  /** True after the end of a companion session: the chat is read-only. */
  isEnded = false;
  /** True if roles, mutes and settings of a group are loaded; the chat list has none of them. */
  isComplete = false;
  /** True if some entries were never loaded. */
  needsHistory = false;
  /** The user has cleared the chat up to this seq; these messages are never shown again. */
  clearedUpto = 0;
  readonly log: ChatLog;
  readonly marks = new Map<string, Marks>();
  readonly #me: string;
  readonly #marksMax: number;
  #listedTop = 0;
  #isStartedByEvent = false;
  #unreadCount: UnreadCount | null = null;
  #unverifiedMarks = new Set<string>(); // users whose markers belong to a previous epoch

  constructor(id: string, me: string, bounds: Bounds) {
    this.id = id;
    this.kind = id.startsWith("d-") ? "direct" : "group";
    this.log = new ChatLog(bounds.entriesMax);
    this.#me = me;
    this.#marksMax = bounds.marksMax;
  }

  /** The newest seq that is known. */
  get top(): number {
    return Math.max(this.#listedTop, this.log.top);
  }

  /** The user's read mark. */
  get read(): number {
    return this.marks.get(this.#me)?.read ?? 0;
  }

  /** The number of unread messages from others; approximate while entries are missing. */
  get unread(): number {
    const count = this.#unreadCount;
    if (count !== null && count.read === this.read && count.top <= this.top) {
      const first = Math.max(count.read, this.clearedUpto) + 1;
      const deleted = this.log.countDeletedSince(count.top, first, count.top);
      return Math.max(0, count.unread - deleted) + this.#countMessages(count.top);
    }
    return this.#countMessages(this.read);
  }

  #countMessages(after: number): number {
    const first = Math.max(after, this.clearedUpto);
    return Math.max(0, this.top - first - this.log.countIgnored(first));
  }

  /** The other member of a direct chat; null in a group, or if the members are not loaded. */
  get peer(): string | null {
    const others = Object.keys(this.members ?? {}).filter((user) => user !== this.#me);
    return this.kind === "direct" && others.length === 1 ? (others[0] ?? null) : null;
  }

  // lists and snapshots

  /** Apply chat info from a response or an event. */
  applyInfo(info: Partial<ChatInfo>): void {
    this.#applyCommonFields(info);
    if (info.members !== undefined) {
      // Complete info: absent fields have their default.
      this.slowS = info.slow_s ?? 0;
      this.retentionS = info.retention_s ?? 0;
      this.topic = info.topic ?? null;
      this.picture = info.picture ?? null;
      this.muted = { ...info.muted };
      this.isComplete ||= info.members.length > 0 && (info.count ?? 0) > 0;
    }
  }

  /** Return whether a member is muted at `nowS`, in Unix seconds. */
  isMuted(user: string, nowS: number): boolean {
    const until = this.muted[user];
    return until !== undefined && (until === 0 || until > nowS);
  }

  #applyCommonFields(info: Partial<ChatInfo>): void {
    this.kind = info.kind ?? this.kind;
    this.name = info.name === undefined ? this.name : info.name;
    this.isEnded = this.isEnded || info.ended === true;
    if (info.members !== undefined && info.members.length > 0) {
      const before = this.members ?? {};
      const roles: Record<string, string> = info.roles ?? {};
      this.members = Object.fromEntries(
        info.members.map((user) => [user, roles[user] ?? before[user] ?? "member"]),
      );
    }
  }

  /** Apply the chat's summary in the chat list or in a snapshot. */
  applySummary(summary: ChatSummary): ChatEvent[] {
    this.#applyCommonFields(summary);
    this.picture = summary.picture ?? null;
    this.#listedTop = Math.max(this.#listedTop, summary.top ?? 0);
    if (summary.last != null && summary.last.seq > this.clearedUpto) this.last = summary.last;
    const changed = this.applyMarks({ user: this.#me, read: summary.read ?? 0 });
    const { read = 0, top = 0, unread = 0 } = summary;
    this.#unreadCount = omitCleared({ read, top, unread }, this.clearedUpto);
    if (summary.peer != null) changed.push(...this.applyMarks(summary.peer));
    if (summary.hidden !== undefined && summary.hidden.length > 0) {
      this.log.hide(summary.hidden);
      changed.push({ type: "messagesHidden", chat: this.id, seqs: [...summary.hidden] });
    }
    if (this.log.shown === null && this.#listedTop > this.log.newest) this.needsHistory = true;
    return changed;
  }

  /** Apply a member's read and received marks; lower marks change nothing. */
  applyMarks(fields: MarksFields): ChatEvent[] {
    const { user } = fields;
    let marks = this.marks.get(user);
    if (marks === undefined) {
      if (this.marks.size >= this.#marksMax && user !== this.#me) return [];
      marks = new Marks();
      this.marks.set(user, marks);
    } else if (this.#unverifiedMarks.has(user)) {
      this.#unverifiedMarks.delete(user);
      marks.read = marks.received = 0;
    }
    if (!marks.advance(fields.read ?? 0, fields.received ?? 0)) return [];
    const { read, received } = marks;
    return [{ type: "marked", chat: this.id, user, read, received }];
  }

  // persistence

  /** Return the values to store. */
  save(): SavedChat {
    return {
      kind: this.kind,
      top: this.top,
      read: this.read,
      unread: this.unread,
      name: this.name,
      members: this.members,
      slowS: this.slowS,
      retentionS: this.retentionS,
      muted: this.muted,
      marks: Object.fromEntries(
        [...this.marks].map(([user, { read, received }]) => [user, [read, received]]),
      ),
      isLarge: this.isLarge,
      isEnded: this.isEnded,
      needsHistory: this.needsHistory,
      topic: this.topic,
      picture: this.picture,
      clearedUpto: this.clearedUpto,
    };
  }

  /** Restore stored values. */
  restore(saved: SavedChat): void {
    this.kind = saved.kind;
    this.name = saved.name;
    this.members = saved.members;
    this.slowS = saved.slowS;
    this.retentionS = saved.retentionS;
    this.muted = saved.muted;
    this.isLarge = saved.isLarge || this.isLarge;
    this.isEnded = saved.isEnded;
    this.needsHistory = saved.needsHistory;
    this.topic = saved.topic ?? null;
    this.picture = saved.picture ?? null;
    this.clear(saved.clearedUpto ?? 0);
    for (const [user, [read, received]] of Object.entries(saved.marks)) {
      this.applyMarks({ user, read, received });
    }
    if (!this.log.isUnverified) {
      this.#listedTop = saved.top;
      this.#unreadCount = { read: saved.read, top: saved.top, unread: saved.unread };
    }
  }

  // new epoch

  /** Mark log and markers as unverified: the server may have reassigned seqs. */
  markUnverified(): void {
    this.log.markUnverified();
    this.#unverifiedMarks = new Set(this.marks.keys());
    this.#listedTop = 0;
    this.#unreadCount = null;
    // If the chat started with an event of the lost epoch, an earlier entry may be missing.
    this.needsHistory = this.needsHistory || this.#isStartedByEvent;
    this.#isStartedByEvent = false;
  }

  /** Apply the result of a log comparison; return the events to deliver. */
  applyVerification(result: VerificationResult): ChatEvent[] {
    for (const user of this.#unverifiedMarks) {
      const marks = this.marks.get(user);
      if (marks === undefined) continue;
      marks.read = Math.min(marks.read, result.matchSeq);
      marks.received = Math.min(marks.received, result.matchSeq);
    }
    // Otherwise, the next markers apply, even if they are lower.
    if (result.isExact) this.#unverifiedMarks.clear();
    const events: ChatEvent[] = [];
    const chat = this.id;
    if (result.isTruncated) {
      const { withdrawn: seqs, matchSeq: after } = result;
      events.push({ type: "entriesWithdrawn", chat, seqs, after });
    }
    if (!result.isExact && this.log.shown !== null) {
      // Matching entries above `shown` are behind a gap and were not delivered yet.
      const upto = Math.min(result.matchSeq, this.log.shown);
      events.push({ type: "skipped", chat, after: 0, upto });
    }
    return [...events, ...this.releaseEvents()];
  }

  // entries

  /** Apply a pushed entry. */
  applyEntry(entry: Entry): ChatEvent[] {
    if (!this.log.isUnverified) {
      if (this.log.shown === null && entry.seq > 1) this.#isStartedByEvent = true;
      this.log.startAfter(entry.seq - 1);
    }
    if (this.log.isAdjacent(entry.seq)) this.log.put(entry);
    this.log.recordPushed(entry.seq);
    // No event: sending a message implies having read the earlier ones.
    if (isMessage(entry)) this.applyMarks({ user: entry.sender, read: entry.seq });
    return this.releaseEvents();
  }

  /** Hide messages that the user deleted for themselves. */
  hide(seqs: number[]): ChatEvent[] {
    if (this.#unreadCount !== null) {
      const { read, top, unread } = this.#unreadCount;
      const fresh = seqs.filter((seq) => read < seq && seq <= top && !this.log.isHidden(seq));
      this.#unreadCount = { read, top, unread: Math.max(0, unread - fresh.length) };
    }
    this.log.hide(seqs);
    return [{ type: "messagesHidden", chat: this.id, seqs: [...seqs] }];
  }

  /** Delete the messages up to seq `upto`, which the user cleared; return whether `upto` is new. */
  clear(upto: number): boolean {
    if (upto <= this.clearedUpto) return false;
    this.clearedUpto = upto;
    this.log.clear(upto);
    if (this.#unreadCount !== null) this.#unreadCount = omitCleared(this.#unreadCount, upto);
    if (this.last !== null && this.last.seq <= upto) this.last = null;
    return true;
  }

  /** Apply a page that the application requested; its entries are not delivered as events. */
  applyPage(page: Entry[], isNewest: boolean, before: number | null = null): ChatEvent[] {
    const last = page.at(-1);
    if (isNewest) {
      if (last !== undefined) {
        this.log.putPage(page);
        if (!this.log.isUnverified) this.log.startAfter(last.seq);
      } else if (this.log.shown === null) {
        this.log.startAfter(0);
      }
      this.needsHistory = this.#isStartedByEvent = false;
    } else {
      this.log.putPage(page, before);
    }
    return this.releaseEvents();
  }

  /**
   * Replace stored entries with newer copies; ignore entries that are not stored.
   *
   * A message that became deleted without a delete entry was deleted only for the user.
   */
  refresh(page: Entry[]): ChatEvent[] {
    const hidden = page.filter((copy) => this.log.isHiddenBy(copy)).map(({ seq }) => seq);
    this.log.refresh(page);
    return hidden.length > 0 ? this.hide(hidden) : [];
  }

  /** Return the events for all entries up to the next gap. */
  releaseEvents(): ChatEvent[] {
    const events: ChatEvent[] = [];
    this.log.advance((entry) => events.push(this.#applyDelivered(entry)));
    return events;
  }

  #applyDelivered(entry: Entry): ChatEvent {
    const chat = this.id;
    if (isMessageChange(entry)) {
      const message = entry.target == null ? null : this.log.find(entry.target);
      return { type: "messageChanged", chat, change: entry, message };
    }
    switch (entry.kind) {
      case "member":
        this.#applyMember(entry);
        return { type: "memberChanged", chat, change: entry };
      case "update":
        this.name = entry.name || this.name;
        this.#applyUpdate(entry.body);
        return { type: "chatChanged", chat, change: entry };
      case "pin":
      case "unpin":
        return { type: "pinsChanged", chat, change: entry };
      default: {
        const isUnchanged = (entry.rev ?? 0) === 0 && !this.log.isHidden(entry.seq);
        const message = isUnchanged ? entry : (this.log.find(entry.seq) ?? entry);
        return { type: "messageAdded", chat, message };
      }
    }
  }

  #applyUpdate(body: string): void {
    let settings: unknown;
    try {
      settings = JSON.parse(body);
    } catch {
      return; // a plain name, or the format of a newer server
    }
    if (typeof settings !== "object" || settings === null) return;
    const {
      slow_s: slowS,
      retention_s: retentionS,
      topic,
      picture,
    } = settings as Record<string, unknown>;
    if (typeof slowS === "number") this.slowS = slowS;
    if (typeof retentionS === "number") this.retentionS = retentionS;
    if (typeof topic === "string") this.topic = topic || null;
    if (typeof picture === "string") this.picture = picture || null;
  }

  #applyMute(user: string, entry: Entry): void {
    const until = entry.muted_until;
    if (!entry.role || until === MUTE_ENDED) {
      delete this.muted[user];
    } else if (until != null) {
      const isKnown = user in this.muted;
      if (isKnown || Object.keys(this.muted).length < this.#marksMax) this.muted[user] = until;
    }
  }

  #applyMember(entry: Entry): void {
    if (entry.user == null) return;
    this.#applyMute(entry.user, entry);
    if (entry.user === this.#me) this.isLeft = !entry.role;
    if (entry.role) {
      this.members = { ...this.members, [entry.user]: entry.role };
    } else if (this.members !== null) {
      const { [entry.user]: _, ...others } = this.members;
      this.members = others;
    }
  }
}
