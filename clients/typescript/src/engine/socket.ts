// One WebSocket connection to a gateway: frames and close reasons.

import type { Bye } from "../generated/frames.js";
import { ChatError } from "../state/errors.js";
import type { Fields } from "../state/model.js";

const SUBPROTOCOL = "chat.v1";
const OPEN_MS = 10_000;

/** The part of the WebSocket API that the SDK uses; package `ws` has it, too. */
export interface WebSocketLike {
  readonly readyState: number;
  send(data: string): void;
  close(code?: number, reason?: string): void;
  addEventListener(type: "open" | "error", listener: () => void): void;
  addEventListener(type: "message", listener: (event: { data: unknown }) => void): void;
  addEventListener(
    type: "close",
    listener: (event: { code: number; reason: string }) => void,
  ): void;
}

/** A WebSocket class. */
export type WebSocketConstructor = new (url: string, protocols: string[]) => WebSocketLike;

/** The reason for the end of a connection. Code 0: network failure. */
export interface CloseReason {
  code: number;
  reason: string;
  retryAfterMs: number | null;
}

/** A connection. `onFrame` is called with each frame; `closed` resolves when it has ended. */
export class Socket {
  readonly closed: Promise<CloseReason>;
  onFrame: (frame: Fields) => void = () => {};
  readonly #socket: WebSocketLike;
  #end: (reason: CloseReason) => void = () => {};

  constructor(socket: WebSocketLike) {
    this.#socket = socket;
    this.closed = new Promise((resolve) => {
      this.#end = resolve;
    });
    let bye: Partial<Bye> = {};
    socket.addEventListener("message", ({ data }) => {
      const frame = parseFrame(data);
      if (frame === null) this.drop("the server sent invalid JSON");
      else if (frame.type === "bye") bye = frame as unknown as Bye;
      else this.onFrame(frame);
    });
    socket.addEventListener("close", ({ code, reason }) => {
      const text = bye.reason || reason || "the connection was lost";
      // Lower codes are not of this protocol.
      const protocolCode = code >= 3000 ? code : 0;
      this.#end({ code: protocolCode, reason: text, retryAfterMs: bye.retry_after_ms ?? null });
    });
    socket.addEventListener("error", () => {}); // `close` follows
  }

  /** Send a frame; a no-op if the connection is closed. */
  send(fields: Fields): void {
    if (this.#socket.readyState === 1) this.#socket.send(JSON.stringify(fields));
  }

  /** Close the connection without waiting for the server. */
  drop(reason: string): void {
    this.#end({ code: 0, reason, retryAfterMs: null });
    this.onFrame = () => {};
    this.close();
  }

  close(): void {
    this.#socket.close(1000);
  }
}

function parseFrame(data: unknown): Fields | null {
  try {
    const frame: unknown = JSON.parse(String(data));
    const isFrame = typeof frame === "object" && frame !== null && "type" in frame;
    return isFrame ? (frame as Fields) : { type: "" };
  } catch {
    return null;
  }
}

/**
 * Connect to a gateway.
 *
 * @throws {@link ChatError} `bad_request`: the address is invalid, or there is no WebSocket class;
 * `unavailable`: no gateway answered.
 */
export function openSocket(url: string, WebSocketClass?: WebSocketConstructor): Promise<Socket> {
  const Class = WebSocketClass ?? (globalThis as { WebSocket?: WebSocketConstructor }).WebSocket;
  if (Class === undefined) {
    const text = "this platform has no WebSocket class; pass one, such as that of package ws";
    throw new ChatError("bad_request", `WebSocket: ${text}`);
  }
  let webSocket: WebSocketLike;
  try {
    webSocket = new Class(url, [SUBPROTOCOL]);
  } catch (cause) {
    const text = `url: ${url}: must be a gateway address, ws:// or wss://`;
    throw new ChatError("bad_request", text, { cause });
  }
  return new Promise((resolve, reject) => {
    const fail = (reason: string): void => {
      clearTimeout(timer);
      reject(new ChatError("unavailable", reason));
    };
    const timer = setTimeout(() => {
      fail("the gateway does not respond");
      webSocket.close();
    }, OPEN_MS);
    const socket = new Socket(webSocket);
    webSocket.addEventListener("open", () => {
      clearTimeout(timer);
      resolve(socket);
    });
    void socket.closed.then(({ reason }) => fail(reason));
  });
}
