// Errors of the SDK: the error codes of the protocol, as one class.

import { ERROR_CODES, type Error as ErrorFrame } from "../generated/frames.js";

/** Error codes of the protocol. A newer server may send others. */
export type ErrorCode = keyof typeof ERROR_CODES;

/** Options of a {@link ChatError}. */
export interface ChatErrorOptions {
  /** True if the same call may succeed later; the default depends on the code. */
  isTemporary?: boolean;
  /** Minimum wait before a retry, in milliseconds. */
  retryAfterMs?: number | null;
  /** The original error. */
  cause?: unknown;
}

/** A failed request. `code` is an error code of the protocol. */
export class ChatError extends Error {
  /** The error code, such as `not_found`. */
  readonly code: ErrorCode | (string & {});
  /** True if the same call may succeed later. */
  readonly isTemporary: boolean;
  /** Minimum wait before a retry, in milliseconds; null if unknown. */
  readonly retryAfterMs: number | null;

  constructor(code: ErrorCode | (string & {}), message: string, options: ChatErrorOptions = {}) {
    super(message, options.cause === undefined ? {} : { cause: options.cause });
    this.name = "ChatError";
    this.code = code;
    this.isTemporary = options.isTemporary ?? ERROR_CODES[code as ErrorCode] ?? false;
    this.retryAfterMs = options.retryAfterMs ?? null;
  }
}

/** Return the error of an `error` frame. */
export function parseError(frame: Partial<ErrorFrame>): ChatError {
  return new ChatError(frame.code ?? "internal", frame.message ?? "", {
    ...(frame.temporary === undefined ? {} : { isTemporary: frame.temporary }),
    retryAfterMs: frame.retry_after_ms ?? null,
  });
}
