// The pure state machine, for clients with their own I/O: import from "tierchat/state".

export { ReconnectPolicy, type Uniform } from "./backoff.js";
export { ChatState, type SavedChat } from "./chat.js";
export { ChatError, parseError, type ChatErrorOptions, type ErrorCode } from "./errors.js";
export type * from "./events.js";
export { DEFAULT_BOUNDS, type Bounds, type Cursor, type Entry, type Fields } from "./model.js";
export { createOutboxEntry, type OutboxEntry, type Stage } from "./outbox.js";
export { findFirstSeqs, buildOutbox, buildPosition, restore, saveChat } from "./saved_state.js";
export type {
  SavedChatRecord,
  SavedOperation,
  SavedOutbox,
  SavedOutcome,
  SavedPosition,
} from "./saved_state.js";
export { REQUEST_TIMEOUT_S, ClientState, type Answer, type QueuedEvent } from "./state.js";
export { findUser, getRenewalDelayS } from "./token_renewal.js";
