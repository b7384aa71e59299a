// The use cases of the client: what happens when a frame arrives, when the user does something,
// and when time passes. Stands between the connection, the store and the storage.

import { Connection } from "./connection.js";
import { cleanBody } from "./format.js";
import { CHANGE_WORDS, LOAD_WORDS, SEND_WORDS, reasonOf } from "./refusals.js";
import { seenWith } from "./state/messages.js";
import { frameOf, nextRetry, newEntry, sendable, unstoredByChat } from "./state/outbox.js";

const PAGE = 50;
const HOLE_PAGE = 200;
const LARGE_MAX = 1000; // in a hello; further large chats are read from history
const MARK_MS = 400;
const TYPING_EVERY_MS = 3000;
const TYPING_IDLE_MS = 4500;
const TICK_MS = 1000;
const RETRY_MS = 1000;
const PATIENCE_MS = 60_000; // who is told to wait for longer hears so, and decides himself

export class ChatClient {
  #marks = new Map(); // chat → seq that the server is to learn
  #markTimer = null;
  #typing = null; // {chat, saidAt, timer}: what the others believe
  #flushTimer = null;
  #isSyncing = false;
  #isListing = false;
  #joined = new Set(); // chats in which this connection knows what a companion is saying
  #joining = new Set(); // chats in which it is being asked
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
      onLink: (link) => this.#linkMoved(link),
    });
  }

  get state() {
    return this.store.state;
  }

  start() {
    this.connection.start();
    this.#ticking();
  }

  stop() {
    this.connection.stop();
    for (const timer of [this.#tick, this.#markTimer, this.#flushTimer, this.#typing?.timer]) {
      this.env.clearTimeout(timer);
    }
  }

  #ticking() {
    this.#tick = this.env.setTimeout(() => {
      this.store.dispatch({ type: "tick", now: this.env.now() });
      this.#ticking();
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

  #linkMoved(link) {
    const wasOpen = this.state.link.status === "open";
    if (link.isReplaced) this.device.renew();
    this.store.dispatch({ type: "link", link });
    if (link.status !== "open") this.#joined.clear();
    if (wasOpen && link.status !== "open") {
      this.#typing = null;
      this.store.dispatch({ type: "disconnected", now: this.env.now() });
    }
    if (link.status === "open") {
      this.#flush();
      this.#flushMarks();
      this.#settle();
    }
  }

  #receive(frame) {
    const now = this.env.now();
    switch (frame.type) {
      case "welcome":
        return this.#welcomed(frame);
      case "event":
        this.store.dispatch({ type: "event", frame, now });
        return this.#settle();
      case "too_long":
      case "reset":
        this.store.dispatch({ type: "snapshot", frame, now });
        this.#flush();
        return this.#settle();
      case "page":
        return this.#takeEvents(frame);
      case "signal":
        if (frame.kind === "post") return this.onPost?.(frame);
        if (frame.kind === "invitation") return this.onInvitation?.();
        this.store.dispatch({ type: "signal", frame, now });
        return frame.kind === "ai.delta" ? this.#settle() : undefined;
      case "stored":
        return this.store.dispatch({ type: "stored", frame });
      default:
        return undefined; // of a later version
    }
  }

  #welcomed(frame) {
    const isFirst = this.state.me === null;
    this.store.dispatch({ type: "welcome", frame });
    if (isFirst) this.onUser(frame.user);
  }

  /** The events of a `sync` page, the probe's among them. */
  #takeEvents(page) {
    const now = this.env.now();
    for (const frame of page.events ?? []) {
      this.store.dispatch({ type: "event", frame: { type: "event", ...frame }, now });
    }
    this.#settle();
  }

  /** Fetch whatever the state lacks: missed events, the chat list, the open chat, a hole. */
  #settle() {
    if (!this.connection.isOpen) return;
    const { state } = this;
    if (state.ahead.length > 0) this.#sync();
    if (!state.isListLoaded || state.needsList) this.#loadList();
    const chat = state.chats.get(state.open);
    if (chat?.kind === "companion" && !chat.isEnded) this.#joinTurn(chat.id);
    if (chat === undefined || chat.loading !== null || chat.trouble !== null) return;
    if (chat.older === "unknown") this.#loadNewest(chat);
    else if (chat.hole !== null) this.#loadHole(chat);
  }

  /** Ask what a companion has said so far, once a connection, and when a piece is missing. */
  async #joinTurn(id) {
    const isBroken = this.state.turns.get(id)?.isBroken === true;
    if (this.#joined.has(id) && !isBroken) return;
    if (this.#joining.has(id)) return;
    this.#joining.add(id);
    this.#joined.add(id);
    try {
      const frame = await this.connection.request({ type: "join_turn", chat: id });
      this.store.dispatch({ type: "turn", frame });
    } catch {
      // The message comes in any case; the next connection asks again.
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
      // Lost: the next connection resumes from the cursor and brings the events. Refused for now:
      // no other event need come and show again that some are missing.
      if (error.isTemporary) this.#later(() => this.#settle(), error.retryAfterMs);
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
      if (this.connection.isOpen) this.#later(() => this.#settle(), error.retryAfterMs);
    } finally {
      this.#isListing = false;
    }
    if (this.state.isListLoaded && !this.state.needsList) this.#settle();
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
      // Scrolling asks again.
    } finally {
      this.#isListing = false;
    }
  }

  #later(work, delayMs) {
    return this.env.setTimeout(work, Math.max(delayMs || 0, RETRY_MS));
  }

  #loadNewest(chat) {
    // One page that reaches back to where the user left off, if that is within a page's bound.
    const limit = Math.min(
      this.state.limits?.page_max ?? PAGE,
      Math.max(PAGE, chat.top - chat.read + 15),
    );
    return this.#loadPage(chat.id, { limit }, "newest");
  }

  /** Load the page before what is loaded. */
  loadOlder(id) {
    const chat = this.state.chats.get(id);
    const isIdle = chat !== undefined && chat.loading === null && chat.trouble === null;
    if (!isIdle || chat.older !== "more" || !this.connection.isOpen) return;
    const [first] = chat.messages;
    this.#loadPage(id, { before: first.seq, ts: first.ts, limit: PAGE }, "older");
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
    this.#settle();
  }

  #loadFailed(id, want, error) {
    if (!this.connection.isOpen) return; // the next connection loads again
    const text = LOAD_WORDS.get(error.code) ?? "Messages could not be loaded.";
    this.store.dispatch({ type: "trouble", chat: id, text });
    if (error.isTemporary) this.#later(() => this.reload(id), error.retryAfterMs);
  }

  /** Try again what could not be loaded. */
  reload(id) {
    if (this.state.chats.get(id)?.trouble == null) return;
    this.store.dispatch({ type: "trouble", chat: id, text: null });
    this.loadOlder(id);
    this.#settle();
  }

  // ── what the user does ────────────────────────────────────────────────────────────────────────

  openChat(id) {
    this.stopTyping();
    this.store.dispatch({ type: "open", chat: id });
    this.#settle();
  }

  closeChat() {
    this.stopTyping();
    this.store.dispatch({ type: "close" });
  }

  /** Open the direct chat with `user` and return its id. Rejects with `RequestFailed`. */
  async openDirect(user) {
    return this.#takeChat(await this.connection.request({ type: "open_direct", user }));
  }

  /** Create a group and return its id. The same `ref` again is the same group. */
  async createGroup({ ref, name, members }) {
    const request = { type: "create_chat", ref, members, ...(name ? { name } : {}) };
    return this.#takeChat(await this.connection.request(request));
  }

  /** Who there is to talk to: `[{id, name, version}, …]`, at most a page. */
  async listCompanions() {
    const answer = await this.connection.request({ type: "companions", limit: PAGE });
    return answer.companions;
  }

  /**
   * Return the chat of the session with a companion, begun if need be; of a renewal, another one.
   * The same `ref` again is the same session.
   */
  async startSession(companion, ref, { isRenewal = false } = {}) {
    const type = isRenewal ? "renew_session" : "create_session";
    try {
      return this.#takeChat(await this.connection.request({ type, companion, ref }));
    } catch (error) {
      const other = { conflict: "get_session", not_found: "create_session" }[error.code];
      if (other === undefined || (error.code === "not_found" && !isRenewal)) throw error;
      const request = other === "get_session" ? { type: other, companion } : { type: other, companion, ref };
      return this.#takeChat(await this.connection.request(request));
    }
  }

  /** End the session that a chat is; it can be read from then on. */
  async endSession(companion, chat) {
    await this.connection.request({ type: "delete_session", companion, chat });
  }

  /** End the answer that is being made; what was said so far becomes the message. */
  async stopAnswer(chat) {
    await this.connection.request({ type: "stop", chat });
  }

  #takeChat({ chat: info }) {
    this.store.dispatch({ type: "info", info, now: this.env.now() });
    return info.chat;
  }

  /** Write a message: it is in the outbox at once, and sent as soon as that is possible. */
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

  /** Give an own message another text. */
  edit(chat, target, text) {
    const body = cleanBody(text);
    return body !== "" && this.#change(chat, { kind: "edit", target }, body);
  }

  /** Delete a message, for everybody or only for the user. */
  remove(chat, target, isForAll) {
    return this.#change(chat, { kind: isForAll ? "delete" : "hide", target });
  }

  /** React to a message; an empty `emoji` takes the reaction back. */
  react(chat, target, emoji) {
    return this.#change(chat, { kind: "reaction", target }, emoji);
  }

  #change(chat, deed, body = "") {
    const entry = newEntry({ ref: this.env.newId(), chat, body, deed, at: this.env.now() });
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
      this.#settle();
    } catch (error) {
      this.#sendFailed(ref, error, entry.deed ? CHANGE_WORDS : SEND_WORDS);
    }
    this.#flush();
  }

  #sendFailed(ref, error, words) {
    if (error.code === "disconnected") return; // `disconnected` puts it back in the queue
    if (error.isTemporary && !(error.retryAfterMs > PATIENCE_MS)) {
      const retryAt = this.env.now() + Math.max(error.retryAfterMs || 0, RETRY_MS);
      this.store.dispatch({ type: "delayed", ref, retryAt });
      return;
    }
    const text = reasonOf(error) ?? words.get(error.code);
    this.store.dispatch({ type: "failed", ref, text: text ?? `The server refused it: ${error.message}` });
  }

  // ── marks, typing, presence of the window ─────────────────────────────────────────────────────

  /** The user has seen the chat up to `seq`: at once here, a moment later on the server. */
  seen(chat, seq) {
    const known = this.state.chats.get(chat);
    if (known === undefined || !this.state.isWatched) return;
    const upto = seenWith(known, seq);
    if (upto <= known.read) return;
    this.store.dispatch({ type: "seen", chat, seq: upto });
    this.#marks.set(chat, Math.max(upto, this.#marks.get(chat) ?? 0));
    if (this.#markTimer !== null) return;
    // The first one goes out at once, those that follow closely go together.
    this.#flushMarks();
    this.#markTimer = this.env.setTimeout(() => this.#flushMarks(), MARK_MS);
  }

  /** The page is going away. */
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
      // Kept for the next try or the next connection, unless the server will never take it.
      if (error.isTemporary === false) this.#marks.delete(chat);
      else this.#markTimer ??= this.#later(() => this.#flushMarks(), error.retryAfterMs);
    }
  }

  /** The user is writing in a chat; the others hear of it at most every three seconds. */
  typing(chat) {
    const now = this.env.now();
    if (this.#typing !== null && this.#typing.chat !== chat) this.stopTyping();
    const saidAt = this.#typing?.saidAt ?? -Infinity;
    this.env.clearTimeout(this.#typing?.timer);
    const timer = this.env.setTimeout(() => this.stopTyping(), TYPING_IDLE_MS);
    const isDue = now - saidAt >= TYPING_EVERY_MS;
    this.#typing = { chat, saidAt: isDue ? now : saidAt, timer };
    if (isDue) this.connection.notify({ type: "typing", chat, on: true });
  }

  stopTyping() {
    if (this.#typing === null) return;
    const { chat, timer } = this.#typing;
    this.env.clearTimeout(timer);
    this.#typing = null;
    this.connection.notify({ type: "typing", chat, on: false });
  }

  /** The window was shown or hidden, focused or left. */
  setAttention({ isVisible, isFocused }) {
    this.store.dispatch({ type: "watched", isWatched: isVisible && isFocused });
    if (isVisible === this.isForeground) return;
    this.isForeground = isVisible;
    this.connection.notify({ type: "state", state: isVisible ? "fg" : "bg" });
    if (isVisible) this.connection.suspect();
    else this.stopTyping();
  }
}
