// A chat of a client: its state and operations.

import type { Backend, ChatDescription, PendingOperation, View } from "../engine/backend.js";
import type {
  Attachment,
  ChatInfo,
  HistoryPage,
  Message,
  Send,
  UpdateChat,
} from "../generated/frames.js";
import type { PinnedMessage } from "../generated/http.js";
import { type UploadOptions, uploadFile } from "../http/files.js";
import type { HttpClient } from "../http/http_client.js";
import { REQUEST_TIMEOUT_S } from "../state/client_state.js";
import { applyExpiry, type Fields } from "../state/model.js";
import { newRef } from "../state/refs.js";
import type { DraftSync } from "./draft_sync.js";
import type { Sending } from "./sending.js";

const LOAD_ATTEMPTS = 3;

/** A message to send. */
export interface Draft {
  /** The text. It may be empty or absent if there are attachments. */
  body?: string;
  /** Seq of the message that it replies to. */
  replyTo?: number;
  /** Results of {@link Chat.upload}, or the ids of attachments. */
  attachments?: (Attachment | string)[];
  /** Type of the body, defined by clients; "text" by default. */
  kind?: string;
  /** Lifetime in seconds. */
  expiresS?: number;
  /** "hot": ack after the commit. "stored": ack after the write to DynamoDB. */
  durability?: "hot" | "stored";
  /** Idempotency key; random by default. */
  ref?: string;
}

/** Selects a page of history; by default the newest. */
export interface HistoryOptions {
  before?: number;
  after?: number;
  /** 1 to 200; 50 by default. */
  limit?: number;
}

/** A page of messages in ascending seq, without gaps. */
export interface MessagesPage {
  messages: Message[];
  /** The coldest storage tier that was read; "cache": the device was offline. */
  tier: string;
  hasMore: boolean;
}

/** Settings of a group. Absent fields stay unchanged. */
export interface GroupSettings {
  name?: string;
  joining?: "invited" | "open";
  history?: "joined" | "all";
  slowS?: number;
  retentionS?: number;
  /** An empty topic or picture removes it. */
  topic?: string;
  /** Id of a picture that was uploaded with `POST /v1/me/attachments`. */
  picture?: string;
}

/** The parts of the client that a chat uses. @internal */
export interface ChatOwner {
  readonly backend: Backend;
  /** The state; also available before `connect` and after `close`. */
  readonly view: View | null;
  readonly http: HttpClient;
  readonly drafts: DraftSync | null;
  submit(chat: string, fields: Fields, ref?: string): Sending;
}

/**
 * A chat. Its properties are the current state; `client.on` and `client.events` report changes.
 *
 * @example `const sent = chat.send({ body: "Hello" }); await sent;`
 */
export class Chat {
  /** The id of the chat. */
  readonly id: string;
  readonly #owner: ChatOwner;
  readonly #fixedDescription: ChatDescription | null;
  #snapshot: Chat | null = null;
  #loading: Promise<ChatInfo> | null = null;

  /** @internal */
  constructor(id: string, owner: ChatOwner, fixedDescription: ChatDescription | null = null) {
    this.id = id;
    this.#owner = owner;
    this.#fixedDescription = fixedDescription;
  }

  // state

  get #description(): ChatDescription | null {
    return this.#fixedDescription ?? this.#owner.view?.describe(this.id) ?? null;
  }

  /**
   * A snapshot of the properties. It is the same object until one of them changes, so that user
   * interfaces can compare objects. Its messages, draft and pending operations are always current.
   */
  get snapshot(): Chat {
    const description = this.#description;
    if (description === null || this.#fixedDescription !== null) return this;
    if (this.#snapshot === null || this.#snapshot.#fixedDescription !== description) {
      this.#snapshot = new Chat(this.id, this.#owner, description);
    }
    return this.#snapshot;
  }

  /** True if this client has loaded the chat. */
  get isKnown(): boolean {
    return this.#description !== null;
  }

  /** "direct", "group" or "companion". */
  get kind(): string {
    return this.#description?.kind ?? (this.id.startsWith("d-") ? "direct" : "group");
  }

  /** The name of a group, or null. */
  get name(): string | null {
    return this.#description?.name ?? null;
  }

  /** User → role; null: not loaded. At most 256 members. */
  get members(): Readonly<Record<string, string>> | null {
    return this.#description?.members ?? null;
  }

  /** The other member of a direct chat. */
  get peer(): string | null {
    return this.#description?.peer ?? null;
  }

  /** The number of unread messages from others. */
  get unread(): number {
    return this.#description?.unread ?? 0;
  }

  /** The user's read mark. */
  get read(): number {
    return this.#description?.read ?? 0;
  }

  /** The newest seq. */
  get top(): number {
    return this.#description?.top ?? 0;
  }

  /** User → [read, received]. */
  get marks(): Readonly<Record<string, readonly [number, number]>> {
    return this.#description?.marks ?? {};
  }

  /** Topic of a group; null if it has none, or if it is not loaded. */
  get topic(): string | null {
    return this.#description?.topic ?? null;
  }

  /** Id of a group's picture, see `GET /v1/chats/{chat}/picture`. */
  get picture(): string | null {
    return this.#description?.picture ?? null;
  }

  /** Minimum seconds between two messages of a member. */
  get slowS(): number {
    return this.#description?.slowS ?? 0;
  }

  /** Lifetime of new messages in seconds; 0: forever. */
  get retentionS(): number {
    return this.#description?.retentionS ?? 0;
  }

  /** The user has cleared the chat up to this seq. */
  get clearedUpto(): number {
    return this.#description?.clearedUpto ?? 0;
  }

  /** True after the end of a session with an AI companion. */
  get isEnded(): boolean {
    return this.#description?.isEnded ?? false;
  }

  /** True if the user is no longer a member. */
  get isLeft(): boolean {
    return this.#description?.isLeft ?? false;
  }

  /** True if some messages were never loaded: call {@link Chat.history}. */
  get needsHistory(): boolean {
    return this.#description?.needsHistory ?? true;
  }

  /** True if the roles, mutes and settings of a group are loaded; see {@link Chat.load}. */
  get isComplete(): boolean {
    return this.#description?.isComplete ?? false;
  }

  /** Return whether a member is muted now. */
  isMuted(user: string): boolean {
    const until = this.#description?.muted[user];
    return until !== undefined && (until === 0 || until > Date.now() / 1000);
  }

  /** The messages on this device, with all changes applied: the same list until it changes. */
  get messages(): readonly Message[] {
    this.#owner.view?.openChat(this.id);
    return this.#owner.view?.messages(this.id) ?? [];
  }

  /** The newest message; null: none, or not loaded. */
  get lastMessage(): Message | null {
    const last = this.#description?.last ?? null;
    return last === null ? null : applyExpiry(last, Date.now() / 1000);
  }

  /** The user's operations that are not stored on the server yet, in order. */
  get pending(): PendingOperation[] {
    return this.#owner.view?.pending(this.id) ?? [];
  }

  /** The unsent text; it is saved in the store. */
  get draft(): string {
    return this.#owner.view?.draft(this.id) ?? "";
  }

  set draft(text: string) {
    this.#owner.backend.setDraft(this.id, text);
    this.#owner.drafts?.onChanged(this.id);
  }

  // messages

  /** Send a message; this also works offline. `await` the result for the ack. */
  send(draft: Draft): Sending {
    const fields: Omit<Send, "id" | "chat" | "ref"> = {
      type: "send",
      body: draft.body ?? "",
      kind: draft.kind ?? "text",
      durability: draft.durability ?? "hot",
    };
    if (draft.replyTo !== undefined) fields.reply_to = draft.replyTo;
    if (draft.expiresS !== undefined) fields.expires_s = draft.expiresS;
    if (draft.attachments !== undefined && draft.attachments.length > 0) {
      fields.attachments = draft.attachments.map((item) => {
        return typeof item === "string" ? item : item.id;
      });
    }
    return this.#owner.submit(this.id, { ...fields }, draft.ref);
  }

  /** Replace the text of one of the user's messages. */
  edit(seq: number, body: string): Sending {
    return this.#owner.submit(this.id, { type: "edit", seq, body });
  }

  /** Delete a message, for everyone or only for the user. */
  delete(seq: number, scope: "all" | "me" = "all"): Sending {
    return this.#owner.submit(this.id, { type: "delete", seq, for: scope });
  }

  /** Set the user's reaction to a message; "" removes it. */
  react(seq: number, emoji: string): Sending {
    return this.#owner.submit(this.id, { type: "react", seq, emoji });
  }

  /** Send a refused operation again, with a new ref. */
  retry(operation: PendingOperation): Sending {
    return this.#owner.submit(this.id, operation.fields);
  }

  /** Mark messages up to `seq` as read; by default all. The marker never moves back. */
  async markRead(seq = this.top): Promise<void> {
    if (seq > 0) await this.#request({ type: "mark", read: seq });
  }

  /** Mark messages up to `seq` as received; by default all. */
  async markReceived(seq = this.top): Promise<void> {
    if (seq > 0) await this.#request({ type: "mark", received: seq });
  }

  /** Send a typing indicator to the other members. */
  typing(isOn: boolean): void {
    this.#owner.backend.notify({ type: "typing", chat: this.id, on: isOn });
  }

  /**
   * Load a page of messages. They are stored if they are adjacent to the messages on this device.
   *
   * Offline, the page is read from this device, with tier "cache".
   */
  async history(options: HistoryOptions = {}): Promise<MessagesPage> {
    const { limit = 50, ...range } = options;
    const { backend } = this.#owner;
    if (!backend.isOnline && options.after === undefined) {
      const messages = backend.messages(this.id);
      const older = messages.filter(({ seq }) => seq < (options.before ?? Infinity));
      if (older.length > 0) {
        return { messages: older.slice(-limit), tier: "cache", hasMore: (older[0]?.seq ?? 1) > 1 };
      }
    }
    const answer = await this.#request({ type: "history", ...range, limit });
    const page = answer as unknown as HistoryPage;
    return { messages: page.messages, tier: page.tier, hasMore: page.more ?? false };
  }

  // files

  /** Upload a file to the chat and return an attachment for {@link Chat.send}. */
  upload(file: Blob, options: UploadOptions = {}): Promise<Attachment> {
    return uploadFile(this.#owner.http, this.id, file, options);
  }

  // members and settings

  /** Load the roles, mutes and settings of a group; the chat list has none. Needs `apiUrl`. */
  load(): Promise<ChatInfo> {
    this.#loading ??= this.#load().finally(() => {
      this.#loading = null;
    });
    return this.#loading;
  }

  async #load(): Promise<ChatInfo> {
    for (let attempt = 1; ; attempt += 1) {
      const { top } = this;
      const info = (await this.#owner.http.call("get_chat", { chat: this.id })) as ChatInfo;
      // The response may be older than an entry that arrived during the call.
      const isCurrent = this.top === top;
      if (isCurrent) this.#owner.backend.applyInfo(info);
      if (isCurrent || attempt === LOAD_ATTEMPTS) return info;
    }
  }

  /** Add users to a group; users whose consent is needed receive an invitation. */
  invite(users: string[], role: "member" | "admin" = "member"): Promise<ChatInfo> {
    return this.#change({ type: "invite", users, role });
  }

  /** Join a group that is open to everyone. */
  join(): Promise<ChatInfo> {
    return this.#change({ type: "join" });
  }

  /** Leave a group. */
  async leave(): Promise<void> {
    await this.#change({ type: "leave" });
  }

  /** Remove a member. */
  remove(user: string): Promise<ChatInfo> {
    return this.#change({ type: "remove", user });
  }

  /** Change a member's role. */
  setRole(user: string, role: "owner" | "admin" | "member"): Promise<ChatInfo> {
    return this.#change({ type: "set_role", user, role });
  }

  /** Change the name or settings of a group. */
  update(settings: GroupSettings): Promise<ChatInfo> {
    const { slowS, retentionS, ...others } = settings;
    const fields: Partial<UpdateChat> & { type: string } = { type: "update_chat", ...others };
    if (slowS !== undefined) fields.slow_s = slowS;
    if (retentionS !== undefined) fields.retention_s = retentionS;
    return this.#change({ ...fields });
  }

  /** Mute a member for `muteS` seconds, or permanently without `muteS`. 0 unmutes. */
  mute(user: string, muteS?: number): Promise<ChatInfo> {
    const duration = muteS === undefined ? {} : { mute_s: muteS };
    return this.#change({ type: "mute_member", user, ...duration });
  }

  /** Remove a user and prevent them from joining again. */
  ban(user: string): Promise<ChatInfo> {
    return this.#change({ type: "ban_member", user });
  }

  /** Allow a banned user to join again. */
  unban(user: string): Promise<ChatInfo> {
    return this.#change({ type: "unban_member", user });
  }

  /** Report a message to the admins of the group and of the server. */
  async report(seq: number, reason = ""): Promise<void> {
    await this.#request({ type: "report", seq, reason });
  }

  /** Pin a message for all members. */
  async pin(seq: number): Promise<void> {
    await this.#owner.http.call("pin", { chat: this.id, seq });
  }

  /** Unpin a message. */
  async unpin(seq: number): Promise<void> {
    await this.#owner.http.call("unpin", { chat: this.id, seq });
  }

  /** Return the pinned messages, newest first; at most 200. */
  async pins(): Promise<PinnedMessage[]> {
    return (await this.#owner.http.call("list_pins", { chat: this.id, limit: 200 })).items;
  }

  // companions

  /** Stop an AI companion's response; the text so far becomes the message. */
  async stopResponse(): Promise<void> {
    await this.#request({ type: "stop" });
  }

  /** Request the text of an AI companion's response so far; it arrives as `responseUpdated`. */
  async loadResponse(): Promise<void> {
    await this.#request({ type: "join_turn" });
  }

  #request(fields: Fields): Promise<Fields> {
    return this.#owner.backend.request({ ...fields, chat: this.id }, REQUEST_TIMEOUT_S);
  }

  async #change(fields: Fields): Promise<ChatInfo> {
    const answer = await this.#request({ ...fields, ref: newRef() });
    return answer["chat"] as ChatInfo;
  }
}
