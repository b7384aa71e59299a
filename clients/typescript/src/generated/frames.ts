// Generated from docs/asyncapi.json by scripts/generate_types.mjs. Do not edit.

/** Adds the user to a group that they were invited to. */
export interface AcceptInvitation {
  type: "accept_invitation";
  id: number;
  chat: string;
  ref: string;
}

/** A request's entry is committed. `dup`: an earlier request with this `ref` committed it. */
export interface Ack {
  type: "ack";
  id: number;
  ref: string;
  mid: string;
  seq: number;
  ts: number;
  dup: boolean;
  durability: "hot" | "stored";
}

/** An AI message's model, token counts (or estimates) and outcome. */
export interface Ai {
  model: string;
  end?: string;
  tokens_in?: number;
  tokens_out?: number;
  code?: string;
  tools?: string[];
}

/** Part `index` of a companion's streamed response to the message at `seq`. */
export interface AiSignal {
  type: "signal";
  kind: "ai.delta";
  chat: string;
  from: string;
  turn: string;
  seq: number;
  index: number;
  text: string;
  end?: string;
  tool?: string;
}

/** A file attached to a message. */
export interface Attachment {
  id: string;
  name: string;
  type: string;
  size: number;
  width?: number | null;
  height?: number | null;
  thumb?: boolean;
}

/** Renews the session with a newer token for the same user. */
export interface Auth {
  type: "auth";
  id: number;
  token: string;
}

/** Removes a user from a group and prevents them from rejoining. */
export interface BanMember {
  type: "ban_member";
  id: number;
  chat: string;
  ref: string;
  user: string;
}

/** Blocks a user: no direct messages or invitations in either direction. */
export interface Block {
  type: "block";
  id: number;
  user: string;
}

/** A blocked user; `since` is in Unix milliseconds. */
export interface BlockedUser {
  user: string;
  since: number;
}

/** Lists the users that the user has blocked, by id; `after` is the previous page's `next`. */
export interface Blocks {
  type: "blocks";
  id: number;
  after?: string | null;
  limit?: number;
}

/** Response to `blocks`. */
export interface BlocksPage {
  type: "page";
  id: number;
  blocked: BlockedUser[];
  more: boolean;
  next?: string | null;
}

/** Sent before the server closes the connection. */
export interface Bye {
  type: "bye";
  code: number;
  reason: string;
  retry_after_ms?: number;
}

/** A chat's properties. `members` lists the first `MEMBERS_SHOWN_MAX` of `count`, by id. */
export interface ChatInfo {
  chat: string;
  kind: "companion" | "direct" | "group";
  members: string[];
  name?: string | null;
  count?: number;
  roles?: Record<string, "admin" | "member" | "owner">;
  joining?: "invited" | "open";
  history?: "all" | "joined";
  slow_s?: number;
  retention_s?: number;
  muted?: Record<string, number>;
  blocked?: boolean;
  large?: boolean;
  since?: number | null;
  ended?: boolean;
  invited?: string[];
  topic?: string | null;
  picture?: string | null;
}

/** A user's own preferences for a chat. */
export interface ChatPreferences {
  chat: string;
  rev?: number;
  archived?: boolean;
  muted_until?: number | null;
  marked_unread?: boolean;
  draft?: Draft | null;
  cleared_upto?: number;
}

/** The user changed their preferences for a chat. Sent to the user's own devices. */
export interface ChatPreferencesSignal {
  type: "signal";
  kind: "chat_preferences";
  from: string;
  preferences: ChatPreferences;
}

/** An item in a chat list. `top` is the chat's newest seq. */
export interface ChatSummary {
  chat: string;
  kind: "companion" | "direct" | "group";
  top?: number;
  read?: number;
  unread?: number;
  members?: string[];
  name?: string | null;
  last?: Message | null;
  peer?: Marks | null;
  ended?: boolean;
  hidden?: number[];
  picture?: string | null;
}

/** Lists the user's chats by newest activity; `after` is the `next` of the previous page. */
export interface Chats {
  type: "chats";
  id: number;
  after?: string | null;
  limit?: number;
}

/** Response to `chats`. `next` is the `after` for the next page, absent on the last page. */
export interface ChatsPage {
  type: "page";
  id: number;
  chats: ChatSummary[];
  more: boolean;
  next?: string | null;
}

/** An AI companion. `id` is its user id in chats. `version` is its newest version. */
export interface CompanionInfo {
  id: string;
  name: string;
  version: number;
}

/** Lists the AI companions, sorted by id; `after` is the `next` of the previous page. */
export interface Companions {
  type: "companions";
  id: number;
  after?: string | null;
  limit?: number;
}

/** Response to `companions`. */
export interface CompanionsPage {
  type: "page";
  id: number;
  companions: CompanionInfo[];
  more: boolean;
  next?: string | null;
}

/** Creates a group with the sender and `members`. */
export interface CreateChat {
  type: "create_chat";
  id: number;
  ref: string;
  members: string[];
  name?: string | null;
}

/** Starts a session with a companion. If one is already active, `conflict` names its chat. */
export interface CreateSession {
  type: "create_session";
  id: number;
  companion: string;
  ref: string;
}

/** A position in a user's inbox, valid only in its epoch. */
export interface Cursor {
  epoch: string;
  seq: number;
}

/** Declines an invitation without notifying anyone. */
export interface DeclineInvitation {
  type: "decline_invitation";
  id: number;
  chat: string;
}

/** Deletes a message for everyone, or only for the user. */
export interface Delete {
  type: "delete";
  id: number;
  chat: string;
  seq: number;
  ref: string;
  for?: "all" | "me";
  target_ref?: string | null;
}

/**
 * Ends the active session with a companion. With `chat`, ends it only if it is in that chat.
 */
export interface DeleteSession {
  type: "delete_session";
  id: number;
  companion: string;
  chat?: string | null;
  forget?: boolean;
}

/**
 * Text that a user has not sent yet. The higher `version` (time of the last keystroke) wins.
 */
export interface Draft {
  text: string;
  version: number;
}

/** Replaces the text of one of the user's own messages. */
export interface Edit {
  type: "edit";
  id: number;
  chat: string;
  seq: number;
  ref: string;
  body: string;
  target_ref?: string | null;
}

/** A request failed. `temporary`: a retry after `retry_after_ms` may succeed. */
export interface Error {
  type: "error";
  code: string;
  message: string;
  temporary: boolean;
  id?: number;
  ref?: string;
  retry_after_ms?: number;
}

/** An event in the user's inbox, at inbox position `seq`. */
export interface Event {
  type: "event";
  epoch: string;
  seq: number;
  kind:
    | "chat"
    | "delete"
    | "edit"
    | "hidden"
    | "member"
    | "message"
    | "pin"
    | "reaction"
    | "read"
    | "unpin"
    | "update";
  chat: string;
  cs?: number;
  message?: Message;
  read?: Marks;
  info?: ChatInfo;
  hidden?: number[];
}

/** Response to `sync`. */
export interface EventPage {
  type: "page";
  id: number;
  events: Event[];
  cursor: Cursor;
  more: boolean;
}

/** Requests the active session with a companion. */
export interface GetSession {
  type: "get_session";
  id: number;
  companion: string;
}

/**
 * Authenticates the connection; must be the first frame. With `cursor`, events resume after it.
 */
export interface Hello {
  type: "hello";
  v: 1;
  token: string;
  device: string;
  cursor?: Cursor | null;
  state?: "bg" | "fg";
  large?: Record<string, number> | null;
  unstored?: Record<string, number> | null;
}

/** Requests messages before or after a seq of the chat, or the newest messages. */
export interface History {
  type: "history";
  id: number;
  chat: string;
  before?: number | null;
  after?: number | null;
  limit?: number;
  ts?: number | null;
}

/** Response to `history`: contiguous messages, in order of seq. */
export interface HistoryPage {
  type: "page";
  id: number;
  chat: string;
  messages: Message[];
  tier: "cold" | "hot" | "warm";
  more: boolean;
  stored?: number;
  marks?: Marks[];
}

/** An invitation to a group. `at` is in Unix milliseconds, `expires_at` in Unix seconds. */
export interface InvitationInfo {
  chat: string;
  inviter: string;
  at: number;
  expires_at: number;
  name?: string | null;
}

/** The user was invited to a group; request `invitations` again. */
export interface InvitationSignal {
  type: "signal";
  kind: "invitation";
  chat: string;
  from: string;
}

/** Lists the user's pending invitations; `after` is the `next` of the previous page. */
export interface Invitations {
  type: "invitations";
  id: number;
  after?: string | null;
  limit?: number;
}

/** Response to `invitations`. A page with `next` may have fewer than `limit`, or none. */
export interface InvitationsPage {
  type: "page";
  id: number;
  invitations: InvitationInfo[];
  more: boolean;
  next?: string | null;
}

/** Adds users to a group; existing members keep their role. */
export interface Invite {
  type: "invite";
  id: number;
  chat: string;
  ref: string;
  users: string[];
  role?: "admin" | "member";
}

/** Adds the user to an open group. */
export interface Join {
  type: "join";
  id: number;
  chat: string;
  ref: string;
}

/** Requests the text so far of a companion's running response. */
export interface JoinResponse {
  type: "join_turn";
  id: number;
  chat: string;
}

/** A large chat, and the `cs` after which its events begin. The chat's events have `seq` 0. */
export interface LargeChat {
  chat: string;
  seq: number;
}

/** Ends the user's own membership in a group. */
export interface Leave {
  type: "leave";
  id: number;
  chat: string;
  ref: string;
}

/** Server limits that clients need. */
export interface Limits {
  frame_bytes_max: number;
  body_chars_max: number;
  body_bytes_max: number;
  page_max: number;
  members_max: number;
  sends_in_flight_max: number;
}

/** Moves the user's read and received marks in a chat forward; they never move back. */
export interface Mark {
  type: "mark";
  chat: string;
  id?: number | null;
  read?: number | null;
  received?: number | null;
}

/** A member's read and received positions in a chat. */
export interface Marks {
  user: string;
  read?: number;
  received?: number;
}

/** A chat entry, as sent in events, on history pages and as a chat's `last`. */
export interface Message {
  seq: number;
  ts: number;
  chat: string;
  mid: string;
  sender: string;
  ref: string;
  kind: string;
  body: string;
  reply_to?: number | null;
  target?: number | null;
  user?: string | null;
  role?: string | null;
  name?: string | null;
  rev?: number;
  edited_ts?: number;
  edited_seq?: number;
  deleted?: boolean;
  reactions?: Record<string, string>;
  expires_at?: number | null;
  attachments?: Attachment[];
  muted_until?: number | null;
  banned?: boolean;
  ai?: Ai | null;
  shredded?: boolean;
}

/** Mutes a group member for `mute_s` seconds, or indefinitely if omitted; 0 unmutes. */
export interface MuteMember {
  type: "mute_member";
  id: number;
  chat: string;
  ref: string;
  user: string;
  mute_s?: number | null;
}

/** The request succeeded. `chat` is set if the request was about a chat. */
export interface Ok {
  type: "ok";
  id: number;
  chat?: ChatInfo | null;
}

/** Opens the direct chat with another user. Idempotent. */
export interface OpenDirect {
  type: "open_direct";
  id: number;
  user: string;
}

/** Chats that the user has pinned to the top of the chat list, in order. */
export interface PinnedChats {
  chats: string[];
  rev?: number;
}

/** The user changed their pinned chats. Sent to the user's own devices. */
export interface PinnedChatsSignal {
  type: "signal";
  kind: "pinned_chats";
  from: string;
  pinned: PinnedChats;
}

/** A followed user has published a post with the id `post`. */
export interface PostSignal {
  type: "signal";
  kind: "post";
  from: string;
  post: string;
}

/** A user's presence. `last_seen` (Unix µs) is set for an offline user, if known. */
export interface PresenceSignal {
  type: "signal";
  kind: "presence";
  from: string;
  state: "away" | "offline" | "online";
  last_seen?: number;
}

/** Sets the user's reaction to a message; an empty `emoji` removes it. */
export interface React {
  type: "react";
  id: number;
  chat: string;
  seq: number;
  ref: string;
  emoji: string;
  target_ref?: string | null;
}

/** Removes another user from a group. */
export interface Remove {
  type: "remove";
  id: number;
  chat: string;
  ref: string;
  user: string;
}

/** Ends the active session with a companion and starts a new one, atomically. */
export interface RenewSession {
  type: "renew_session";
  id: number;
  companion: string;
  ref: string;
}

/** Reports a message to the admins of the group and the server. */
export interface Report {
  type: "report";
  id: number;
  chat: string;
  seq: number;
  reason?: string;
}

/** The cursor is from another epoch, or ahead of the inbox. Start from this snapshot. */
export interface Reset {
  type: "reset";
  cursor: Cursor;
  chats: ChatSummary[];
  id?: number | null;
  large?: LargeChat[];
}

/** Response to `join_turn`. `text` covers the parts up to `index`; later parts are signals. */
export interface ResponseText {
  type: "turn";
  id: number;
  chat: string;
  turn: string;
  seq: number;
  index: number;
  text: string;
  end?: string;
}

/** Finds messages in the user's chats by their words; `docs/search.md` describes `q`. */
export interface Search {
  type: "search";
  id: number;
  q: string;
  order?: "newest" | "relevance";
  after?: string | null;
  limit?: number;
}

/** Response to `search`. A page with a `next` may have fewer results than `limit`, or none. */
export interface SearchPage {
  type: "page";
  id: number;
  results: SearchResult[];
  more: boolean;
  next?: string | null;
}

/** A matching message. `snippet` is an excerpt of its text, split into plain-text segments. */
export interface SearchResult {
  message: Message;
  snippet: Segment[];
}

/** A part of a search result's snippet, as plain text. `hit`: this part matches the query. */
export interface Segment {
  text: string;
  hit?: boolean;
}

/** Sends a message. A retry with the same `ref` gets the same ack and creates no duplicate. */
export interface Send {
  type: "send";
  id: number;
  chat: string;
  ref: string;
  body: string;
  kind?: string;
  reply_to?: number | null;
  expires_s?: number | null;
  durability?: "hot" | "stored";
  attachments?: string[];
}

/** A user's session with a companion. Version `ai_version` of the companion responds. */
export interface SessionInfo {
  companion: string;
  chat: string;
  ai_version: number;
  create_time: number;
  delete_time?: number | null;
}

/** Response to a request about a session; `chat` only if the session is active. */
export interface SessionReply {
  type: "ok";
  id: number;
  session: SessionInfo;
  chat?: ChatInfo | null;
}

/** Lists the user's companion sessions: active ones, then ended ones by companion and time. */
export interface Sessions {
  type: "sessions";
  id: number;
  companion?: string | null;
  after?: string | null;
  limit?: number;
}

/** Response to `sessions`. `next` is the `after` for the next page. */
export interface SessionsPage {
  type: "page";
  id: number;
  sessions: SessionInfo[];
  more: boolean;
  next?: string | null;
}

/** Changes a group member's role. An owner who transfers ownership becomes an admin. */
export interface SetRole {
  type: "set_role";
  id: number;
  chat: string;
  ref: string;
  user: string;
  role: "admin" | "member" | "owner";
}

/**
 * A typing signal. Signals are never stored, and are dropped if the client reads too slowly.
 */
export interface Signal {
  type: "signal";
  kind: "typing";
  chat: string;
  from: string;
  on: boolean;
}

/** Reports whether the app is in the foreground (`fg`) or background (`bg`). */
export interface State {
  type: "state";
  state: "bg" | "fg";
}

/** Stops a companion's running response; the text so far becomes the message. */
export interface StopResponse {
  type: "stop";
  id: number;
  chat: string;
}

/** All of the user's messages in `chat` up to seq `upto` are in the warm tier. */
export interface Stored {
  type: "stored";
  chat: string;
  upto: number;
}

/** Requests the events after a cursor, one page at a time. */
export interface Sync {
  type: "sync";
  id: number;
  cursor: Cursor;
  limit?: number;
}

/** The hot tier no longer has all missed events. Start from this snapshot. */
export interface TooLong {
  type: "too_long";
  cursor: Cursor;
  chats: ChatSummary[];
  id?: number | null;
  large?: LargeChat[];
}

/** Notifies the other members that the user is typing. Never stored; gets no response. */
export interface Typing {
  type: "typing";
  chat: string;
  on: boolean;
}

/** Lifts a user's ban from a group, without adding the user again. */
export interface UnbanMember {
  type: "unban_member";
  id: number;
  chat: string;
  ref: string;
  user: string;
}

/** Removes the user's own block on another user. */
export interface Unblock {
  type: "unblock";
  id: number;
  user: string;
}

/** Unsubscribes from the presence of these users. */
export interface Unwatch {
  type: "unwatch";
  users: string[];
}

/** Changes a group's name, topic, picture or settings. */
export interface UpdateChat {
  type: "update_chat";
  id: number;
  chat: string;
  ref: string;
  name?: string | null;
  joining?: "invited" | "open" | null;
  history?: "all" | "joined" | null;
  slow_s?: number | null;
  retention_s?: number | null;
  topic?: string | null;
  picture?: string | null;
}

/** Changes the companion version that responds in a session, by default to the newest. */
export interface UpdateSession {
  type: "update_session";
  id: number;
  chat: string;
  version?: number | null;
}

/** Subscribes to the presence of users and requests their current state. */
export interface Watch {
  type: "watch";
  users: string[];
}

/** Response to `hello`. `seq` is the newest seq of the inbox in `epoch`. */
export interface Welcome {
  type: "welcome";
  session: string;
  user: string;
  epoch: string;
  seq: number;
  heartbeat_ms: number;
  limits: Limits;
  large: LargeChat[];
}

/** A frame that a client sends. */
export type ClientFrame =
  | AcceptInvitation
  | Auth
  | BanMember
  | Block
  | Blocks
  | Chats
  | Companions
  | CreateChat
  | CreateSession
  | DeclineInvitation
  | Delete
  | DeleteSession
  | Edit
  | GetSession
  | Hello
  | History
  | Invitations
  | Invite
  | Join
  | JoinResponse
  | Leave
  | Mark
  | MuteMember
  | OpenDirect
  | React
  | Remove
  | RenewSession
  | Report
  | Search
  | Send
  | Sessions
  | SetRole
  | State
  | StopResponse
  | Sync
  | Typing
  | UnbanMember
  | Unblock
  | Unwatch
  | UpdateChat
  | UpdateSession
  | Watch;

/** A frame that the server sends. */
export type ServerFrame =
  | Ack
  | AiSignal
  | BlocksPage
  | Bye
  | ChatPreferencesSignal
  | ChatsPage
  | CompanionsPage
  | Error
  | Event
  | EventPage
  | HistoryPage
  | InvitationSignal
  | InvitationsPage
  | Ok
  | PinnedChatsSignal
  | PostSignal
  | PresenceSignal
  | Reset
  | ResponseText
  | SearchPage
  | SessionReply
  | SessionsPage
  | Signal
  | Stored
  | TooLong
  | Welcome;

/** Requests of `ChatClient.request` by type: the frame, and its reply unless it fails. */
export interface Requests {
  chats: { frame: Chats; reply: ChatsPage };
  open_direct: { frame: OpenDirect; reply: Ok };
  create_chat: { frame: CreateChat; reply: Ok };
  invitations: { frame: Invitations; reply: InvitationsPage };
  decline_invitation: { frame: DeclineInvitation; reply: Ok };
  invite: { frame: Invite; reply: Ok };
  join: { frame: Join; reply: Ok };
  accept_invitation: { frame: AcceptInvitation; reply: Ok };
  leave: { frame: Leave; reply: Ok };
  remove: { frame: Remove; reply: Ok };
  set_role: { frame: SetRole; reply: Ok };
  update_chat: { frame: UpdateChat; reply: Ok };
  mute_member: { frame: MuteMember; reply: Ok };
  ban_member: { frame: BanMember; reply: Ok };
  unban_member: { frame: UnbanMember; reply: Ok };
  mark: { frame: Mark; reply: Ok };
  history: { frame: History; reply: HistoryPage };
  block: { frame: Block; reply: Ok };
  unblock: { frame: Unblock; reply: Ok };
  blocks: { frame: Blocks; reply: BlocksPage };
  report: { frame: Report; reply: Ok };
  stop: { frame: StopResponse; reply: Ok };
  join_turn: { frame: JoinResponse; reply: ResponseText };
  companions: { frame: Companions; reply: CompanionsPage };
  sessions: { frame: Sessions; reply: SessionsPage };
  create_session: { frame: CreateSession; reply: SessionReply };
  renew_session: { frame: RenewSession; reply: SessionReply };
  get_session: { frame: GetSession; reply: SessionReply };
  delete_session: { frame: DeleteSession; reply: SessionReply };
  update_session: { frame: UpdateSession; reply: SessionReply };
  search: { frame: Search; reply: SearchPage };
}

/** The version of the protocol. */
export const PROTOCOL_VERSION = 1;

/** Kinds of entries that are changes and not messages. */
export const CHANGE_KINDS: ReadonlySet<string> = new Set([
  "delete",
  "edit",
  "member",
  "pin",
  "reaction",
  "unpin",
  "update",
]);

/** Most users in one `watch` frame. */
export const WATCH_MAX = 100;

/** Most chats in `large` of `hello`. */
export const LARGE_MAX = 1000;

/** Most chats in `unstored` of `hello`. */
export const UNSTORED_MAX = 100;

/** Close codes by name. */
export const CLOSE_CODES = {
  shutdown: 3000,
  slow: 3001,
  overloaded: 3002,
  no_pong: 3003,
  replaced: 3004,
  unauthenticated: 3500,
  bad_protocol: 3501,
  banned: 3502,
  too_many_sessions: 3503,
  blocked: 3504,
} as const;

/** The error codes of the server: whether the same request may succeed later. */
export const ERROR_CODES = {
  bad_request: false,
  too_large: false,
  unauthenticated: false,
  forbidden: false,
  not_found: false,
  conflict: false,
  rate_limited: true,
  unavailable: true,
  overloaded: true,
  internal: false,
} as const;
