// Chat client: handles frames, user actions and timers. Connects the connection to the store.

import { Connection } from "./connection.js";
import { cleanBody } from "./format.js";
import { LOAD_ERRORS, entryError } from "./error_messages.js";
import { seenWith } from "./state/messages.js";
import { frameOf, nextRetry, newEntry, sendable, unstoredByChat } from "./state/outbox.js";
import { TypingSignals } from "./typing_signals.js";

const PAGE = 50;
const HOLE_PAGE = 200;
const LARGE_MAX = 1000; // in a hello; further large chats are read from history
const MARK_MS = 400;
const TICK_MS = 1000;
const RETRY_MS = 1000;
const RETRY_AFTER_MS_MAX = 60_000; // a longer wait is shown to the user, who decides

export class ChatClient {
  #marks = new Map(); // chat → read mark to send
  #markTimer = null;
  #typing;
  #flushTimer = null;
  #isSyncing = false;
  #isListing = false;
  #joined = new Set(); // chats whose response in progress this connection has loaded
  #joining = new Set(); // chats where it is being loaded
  #tick = null;

  /** `env`: openSocket, setTimeout, clearTimeout, now, random, newId. */
  constructor({ store, url, device, session, refresh, env, onUser }) {
    this.store = store;
    this.session = session;
    this.device = device;
    this.env = env;
    this.onUser = onUser;
    this.isForeground = true;
    this.connection = new Connection({
      url,
      env,
      refresh,
      hello: () => this.#hello(),
      probe: () => ({ type: "sync", cursor: this.state.cursor, limit: 50 }),
      onFrame: (frame) => this.#receive(frame),
      onLink: (link) => this.#onLinkChanged(link),
    });
    this.#typing = new TypingSignals(env, (frame) => this.connection.notify(frame));
  }

  get state() {
    return this.store.state;
  }

  start() {
    this.connection.start();
    this.#scheduleTick();
  }

  stop() {
    this.connection.stop();
    for (const timer of [this.#tick, this.#markTimer, this.#flushTimer]) {
      this.env.clearTimeout(timer);
    }
    this.#typing.forget();
  }

  #scheduleTick() {
    this.#tick = this.env.setTimeout(() => {
      this.store.dispatch({ type: "tick", now: this.env.now() });
      this.#scheduleTick();
    }, TICK_MS);
  }

  // ── connection ────────────────────────────────────────────────────────────────────────────────

  async #hello() {
    const session = await this.session();
    const { cursor, large, unstored } = this.state;
    return {
      type: "hello",
      v: 1,
      token: session.token,
      device: this.device.id,
      ...(cursor === null ? {} : { cursor }),
      ...(cursor === null || large.size === 0 ? {} : { large: Object.fromEntries([...large].slice(0, LARGE_MAX)) }),
      ...(cursor === null || unstored.length === 0 ? {} : { unstored: unstoredByChat(unstored) }),
      state: this.isForeground ? "fg" : "bg",
    };
  }

  #onLinkChanged(link) {
    const wasOpen = this.state.link.status === "open";
    if (link.isReplaced) this.device.renew();
    this.store.dispatch({ type: "link", link });
    if (link.status !== "open") this.#joined.clear();
    if (wasOpen && link.status !== "open") {
      this.#typing.forget();
      this.store.dispatch({ type: "disconnected", now: this.env.now() });
    }
    if (link.status === "open") {
      this.#flush();
      this.#flushMarks();
      this.#loadMissing();
    }
  }

  #receive(frame) {
    const now = this.env.now();
    switch (frame.type) {
      case "welcome":
        return this.#onWelcome(frame);
      case "event":
        this.store.dispatch({ type: "event", frame, now });
        this.onEvent?.(frame);
        return this.#loadMissing();
      case "too_long":
      case "reset":
        this.store.dispatch({ type: "snapshot", frame, now });
        this.#flush();
        return this.#loadMissing();
      case "page":
        return this.#applyEvents(frame);
      case "signal":
        if (frame.kind === "post") return this.onPost?.(frame);
        if (frame.kind === "invitation") return this.onInvitation?.();
        this.store.dispatch({ type: "signal", frame, now });
        return frame.kind === "ai.delta" ? this.#loadMissing() : undefined;
      case "stored":
        return this.store.dispatch({ type: "stored", frame });
      default:
        return undefined; // of a later protocol version
    }
  }

  #onWelcome(frame) {
    const isFirst = this.state.me === null;
    this.store.dispatch({ type: "welcome", frame });
    if (isFirst) this.onUser(frame.user);
  }

  /** Apply the events of a `sync` page, including the probe's. */
  #applyEvents(page) {
    const now = this.env.now();
    for (const frame of page.events ?? []) {
      this.store.dispatch({ type: "event", frame: { type: "event", ...frame }, now });
      this.onEvent?.(frame);
    }
    this.#loadMissing();
  }

  /** Load what the state lacks: missed events, the chat list, the open chat, a hole. */
  #loadMissing() {
    if (!this.connection.isOpen) return;
    const { state } = this;
    if (state.ahead.length > 0) this.#sync();
    if (!state.isListLoaded || state.needsList) this.#loadList();
    const chat = state.chats.get(state.open);
    if (chat?.kind === "companion" && !chat.isEnded) this.#joinResponse(chat.id);
    if (chat === undefined || chat.loading !== null || chat.trouble !== null) return;
    if (chat.older === "unknown") this.#loadNewest(chat);
    else if (chat.hole !== null) this.#loadHole(chat);
  }

  /** Load the response in progress, once per connection and when a part is missing. */
  async #joinResponse(id) {
    const isBroken = this.state.responses.get(id)?.isBroken === true;
    if (this.#joined.has(id) && !isBroken) return;
    if (this.#joining.has(id)) return;
    this.#joining.add(id);
    this.#joined.add(id);
    try {
      const frame = await this.connection.request({ type: "join_turn", chat: id });
      this.store.dispatch({ type: "response", frame });
    } catch {
      // The final message arrives anyway; the next connection tries again.
    } finally {
      this.#joining.delete(id);
    }
  }

  async #sync() {
    if (this.#isSyncing) return;
    this.#isSyncing = true;
    try {
      let more = true;
      while (more) {
        const { cursor } = this.state;
        const answer = await this.connection.request({ type: "sync", cursor, limit: 200 });
        this.#receive(answer);
        more = answer.type === "page" && answer.more && this.state.cursor.seq > cursor.seq;
      }
    } catch (error) {
      // After a lost connection, the next one resumes from the cursor. After a temporary error,
      // retry here: there may be no further event to show that some are missing.
      if (error.isTemporary) this.#later(() => this.#loadMissing(), error.retryAfterMs);
    } finally {
      this.#isSyncing = false;
    }
  }

  // ── loading ───────────────────────────────────────────────────────────────────────────────────

  async #loadList() {
    if (this.#isListing) return;
    this.#isListing = true;
    try {
      const frame = await this.connection.request({ type: "chats", limit: PAGE });
      this.store.dispatch({ type: "list", frame });
    } catch (error) {
      if (this.connection.isOpen) this.#later(() => this.#loadMissing(), error.retryAfterMs);
    } finally {
      this.#isListing = false;
    }
    if (this.state.isListLoaded && !this.state.needsList) this.#loadMissing();
  }

  /** The next page of the chat list. */
  async loadMoreChats() {
    const after = this.state.nextChats;
    if (after === null || this.#isListing || !this.connection.isOpen) return;
    this.#isListing = true;
    try {
      const frame = await this.connection.request({ type: "chats", after, limit: PAGE });
      this.store.dispatch({ type: "list", frame });
    } catch {
      // Scrolling tries again.
    } finally {
      this.#isListing = false;
    }
  }

  #later(work, delayMs) {
    return this.env.setTimeout(work, Math.max(delayMs || 0, RETRY_MS));
  }

  #loadNewest(chat) {
    // One page back to the first unread message, up to the page limit.
    const limit = Math.min(
      this.state.limits?.page_max ?? PAGE,
      Math.max(PAGE, chat.top - chat.read + 15),
    );
    return this.#loadPage(chat.id, { limit }, "newest");
  }

  /** Load the page before what is loaded; undefined if it cannot be loaded now. */
  loadOlder(id) {
    const chat = this.state.chats.get(id);
    const isIdle = chat !== undefined && chat.loading === null && chat.trouble === null;
    if (!isIdle || chat.older !== "more" || !this.connection.isOpen) return undefined;
    const [first] = chat.messages;
    return this.#loadPage(id, { before: first.seq, ts: first.ts, limit: PAGE }, "older");
  }

  #loadHole(chat) {
    const limit = Math.min(this.state.limits?.page_max ?? PAGE, HOLE_PAGE);
    return this.#loadPage(chat.id, { after: chat.hole.after, limit }, "hole");
  }

  async #loadPage(id, range, want) {
    this.store.dispatch({ type: "loading", chat: id, want });
    try {
      const frame = await this.connection.request({ type: "history", chat: id, ...range });
      this.store.dispatch({ type: "page", chat: id, frame, want, before: range.before });
    } catch (error) {
      this.#loadFailed(id, want, error);
      return;
    }
    this.#loadMissing();
  }

  #loadFailed(id, want, error) {
    if (!this.connection.isOpen) return; // the next connection loads again
    const text = LOAD_ERRORS.get(error.code) ?? "Couldn't load messages.";
    this.store.dispatch({ type: "trouble", chat: id, text });
    if (error.isTemporary) this.#later(() => this.reload(id), error.retryAfterMs);
  }

  /** Retry a failed load. */
  reload(id) {
    if (this.state.chats.get(id)?.trouble == null) return;
    this.store.dispatch({ type: "trouble", chat: id, text: null });
    this.loadOlder(id);
    this.#loadMissing();
  }

  // ── user actions ──────────────────────────────────────────────────────────────────────────────

  openChat(id) {
    this.stopTyping();
    this.store.dispatch({ type: "open", chat: id });
    this.#loadMissing();
  }

  closeChat() {
    this.stopTyping();
    this.store.dispatch({ type: "close" });
  }

  /** Open the direct chat with `user` and return its id. Rejects with `RequestFailed`. */
  async openDirect(user) {
    return this.#addChat(await this.connection.request({ type: "open_direct", user }));
  }

  /** Create a group and return its id. Idempotent by `ref`. */
  async createGroup({ ref, name, members }) {
    const request = { type: "create_chat", ref, members, ...(name ? { name } : {}) };
    return this.#addChat(await this.connection.request(request));
  }

  /** List companions: `[{id, name, version}, …]`, at most one page. */
  async listCompanions() {
    const answer = await this.connection.request({ type: "companions", limit: PAGE });
    return answer.companions;
  }

  /**
   * Return the chat of the session with a companion, created if needed; a renewal creates another.
   * Idempotent by `ref`.
   */
  async startSession(companion, ref, { isRenewal = false } = {}) {
    const type = isRenewal ? "renew_session" : "create_session";
    try {
      return this.#addChat(await this.connection.request({ type, companion, ref }));
    } catch (error) {
      const other = { conflict: "get_session", not_found: "create_session" }[error.code];
      if (other === undefined || (error.code === "not_found" && !isRenewal)) throw error;
      const request = other === "get_session" ? { type: other, companion } : { type: other, companion, ref };
      return this.#addChat(await this.connection.request(request));
    }
  }

  /** End a session; its chat becomes read-only. */
  async endSession(companion, chat, forget = false) {
    await this.connection.request({ type: "delete_session", companion, chat, forget });
  }

  /** Stop the response in progress; its text so far becomes the message. */
  async stopResponse(chat) {
    await this.connection.request({ type: "stop", chat });
  }

  #addChat({ chat: info }) {
    this.store.dispatch({ type: "info", info, now: this.env.now() });
    return info.chat;
  }

  /** Add a message to the outbox; it is sent as soon as possible. */
  send(chat, text, replyTo = null, files = []) {
    const body = cleanBody(text);
    if (body === "" && files.length === 0) return false;
    const at = this.env.now();
    const entry = newEntry({ ref: this.env.newId(), chat, body, replyTo, files, at });
    this.stopTyping();
    this.store.dispatch({ type: "compose", entry });
    this.#flush();
    return true;
  }

  /** Edit one of the user's messages. */
  edit(chat, target, text) {
    const body = cleanBody(text);
    return body !== "" && this.#change(chat, { kind: "edit", target }, body);
  }

  /** Delete a message, for everyone or only for the user. */
  remove(chat, target, isForAll) {
    return this.#change(chat, { kind: isForAll ? "delete" : "hide", target });
  }

  /** React to a message; an empty `emoji` removes the reaction. */
  react(chat, target, emoji) {
    return this.#change(chat, { kind: "reaction", target }, emoji);
  }

  #change(chat, change, body = "") {
    const entry = newEntry({ ref: this.env.newId(), chat, body, change, at: this.env.now() });
    this.store.dispatch({ type: "change", entry });
    this.#flush();
    return true;
  }

  retry(ref) {
    this.store.dispatch({ type: "retry", ref, now: this.env.now() });
    this.#flush();
  }

  discard(ref) {
    this.store.dispatch({ type: "discard", ref });
    this.#flush();
  }

  setDraft(chat, text) {
    if (text !== (this.state.drafts.get(chat) ?? "")) {
      this.store.dispatch({ type: "draft", chat, text });
    }
  }

  // ── sending ───────────────────────────────────────────────────────────────────────────────────

  #flush() {
    if (!this.connection.isOpen) return;
    for (const entry of sendable(this.state.outbox, this.env.now())) this.#sendEntry(entry);
    const at = nextRetry(this.state.outbox);
    this.env.clearTimeout(this.#flushTimer);
    if (at !== null) {
      const delay = Math.max(0, at - this.env.now());
      this.#flushTimer = this.env.setTimeout(() => this.#flush(), delay);
    }
  }

  async #sendEntry(entry) {
    const { ref } = entry;
    this.store.dispatch({ type: "sending", ref });
    try {
      const answer = await this.connection.request(frameOf(entry));
      this.store.dispatch({ type: "ack", frame: answer });
      this.#loadMissing();
    } catch (error) {
      this.#sendFailed(entry, error);
    }
    this.#flush();
  }

  #sendFailed({ ref, change }, error) {
    if (error.code === "disconnected") return; // `disconnected` puts it back in the queue
    if (error.isTemporary && !(error.retryAfterMs > RETRY_AFTER_MS_MAX)) {
      const retryAt = this.env.now() + Math.max(error.retryAfterMs || 0, RETRY_MS);
      this.store.dispatch({ type: "delayed", ref, retryAt });
      return;
    }
    this.store.dispatch({ type: "failed", ref, text: entryError(error, change) });
  }

  // ── marks, typing, presence of the window ─────────────────────────────────────────────────────

  /** Move the read mark to `seq`: locally at once, on the server a moment later. */
  seen(chat, seq) {
    const known = this.state.chats.get(chat);
    if (known === undefined || !this.state.isWatched) return;
    const upto = seenWith(known, seq);
    if (upto <= known.read) return;
    this.store.dispatch({ type: "seen", chat, seq: upto });
    this.#marks.set(chat, Math.max(upto, this.#marks.get(chat) ?? 0));
    if (this.#markTimer !== null) return;
    // The first mark is sent at once, further ones are coalesced.
    this.#flushMarks();
    this.#markTimer = this.env.setTimeout(() => this.#flushMarks(), MARK_MS);
  }

  /** The page is being unloaded. */
  leave() {
    this.stopTyping();
    this.#flushMarks();
  }

  #flushMarks() {
    this.env.clearTimeout(this.#markTimer);
    this.#markTimer = null;
    if (!this.connection.isOpen) return; // kept for the next connection
    for (const [chat, read] of this.#marks) this.#sendMark(chat, read);
  }

  async #sendMark(chat, read) {
    try {
      await this.connection.request({ type: "mark", chat, read });
      if (this.#marks.get(chat) === read) this.#marks.delete(chat);
    } catch (error) {
      // Kept for a retry or the next connection, unless the error is permanent.
      if (error.isTemporary === false) this.#marks.delete(chat);
      else this.#markTimer ??= this.#later(() => this.#flushMarks(), error.retryAfterMs);
    }
  }

  typing(chat) {
    this.#typing.send(chat);
  }

  stopTyping() {
    this.#typing.stop();
  }

  /** Apply a change of the window's visibility or focus. */
  setAttention({ isVisible, isFocused }) {
    this.store.dispatch({ type: "watched", isWatched: isVisible && isFocused });
    if (isVisible === this.isForeground) return;
    this.isForeground = isVisible;
    this.connection.notify({ type: "state", state: isVisible ? "fg" : "bg" });
    if (isVisible) this.connection.suspect();
    else this.stopTyping();
  }
}
