/**
 * tierchat: the client SDK of the tierchat server, for browsers, Node, Deno and React Native.
 *
 * Start with {@link ChatClient}. `tierchat/state` has the state machine without I/O,
 * `tierchat/node` a store in a file.
 *
 * @packageDocumentation
 */

export type { HistoryOptions, MessagesPage } from "./client/chat.js";
export { Chat, type Draft, type GroupSettings } from "./client/chat.js";
export type {
  ChatPreferences,
  PreferenceChanges,
  Preferences,
  SavedPreferences,
} from "./client/chat_preferences.js";
export { ChatClient, type ChatListPage } from "./client/client.js";
export { Sending } from "./client/sending.js";
export type { PendingOperation } from "./engine/backend.js";
export type { ClientOptions } from "./engine/options.js";
export type { WebSocketConstructor, WebSocketLike } from "./engine/socket.js";
export type * as Frames from "./generated/frames.js";
export type { Attachment, Message } from "./generated/frames.js";
export type * as Http from "./generated/http.js";
export { Account, type AccountOptions } from "./http/account.js";
export type { UploadOptions } from "./http/files.js";
export type { CallOptions, CallResult, OperationId } from "./http/http_client.js";
export { HttpClient, type HttpClientOptions } from "./http/http_client.js";
export type { NativePushToken } from "./http/push.js";
export { type Bounds, DEFAULT_BOUNDS } from "./state/bounds.js";
export { ChatError, type ChatErrorOptions, type ErrorCode } from "./state/errors.js";
export type * from "./state/events.js";
export type { Fields } from "./state/model.js";
export { newRef } from "./state/refs.js";
export { BestEffortStore } from "./stores/best_effort_store.js";
export { IndexedDbStore } from "./stores/indexeddb_store.js";
export { MemoryStore, type Store, type StoreChanges, type StoredState } from "./stores/store.js";
