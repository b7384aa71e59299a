// The pure state machine, for clients with their own I/O: import from "tierchat/state".

export { type Bounds, DEFAULT_BOUNDS } from "./bounds.js";
export { ChatState, type SavedChat } from "./chat.js";
export { type Answer, ClientState, type QueuedEvent, REQUEST_TIMEOUT_S } from "./client_state.js";
export { ChatError, type ChatErrorOptions, type ErrorCode, parseError } from "./errors.js";
export type * from "./events.js";
export type { Cursor, Entry, Fields } from "./model.js";
export { createOutboxEntry, type OutboxEntry, type Stage } from "./outbox.js";
export { ReconnectPolicy, type Uniform } from "./reconnect_policy.js";
export type {
  SavedChatRecord,
  SavedOperation,
  SavedOutbox,
  SavedOutcome,
  SavedPosition,
} from "./saved_state.js";
export { buildOutbox, buildPosition, findFirstSeqs, restore, saveChat } from "./saved_state.js";
export { findUser, getRenewalDelayS } from "./token_renewal.js";
