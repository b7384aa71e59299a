// One WebSocket connection to a gateway: frames and close reasons.

import type { Bye } from "../generated/frames.js";
import { ChatError } from "../state/errors.js";
import type { Fields } from "../state/model.js";

const SUBPROTOCOL = "chat.v1";
const OPEN_MS = 10_000;

/** The part of the WebSocket API that the SDK uses; the package `ws` has it, too. */
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

/** A WebSocket constructor. */
export type WebSocketConstructor = new (url: string, protocols: string[]) => WebSocketLike;

/** Why a connection ended. Code 0 means a network failure. */
export interface Lost {
  code: number;
  reason: string;
  retryAfterMs: number | null;
}

/** An open connection. `onFrame` gets each frame; `closed` resolves when it has ended. */
export class Socket {
  readonly closed: Promise<Lost>;
  onFrame: (frame: Fields) => void = () => {};
  readonly #socket: WebSocketLike;
  #end: (lost: Lost) => void = () => {};

  constructor(socket: WebSocketLike) {
    this.#socket = socket;
    this.closed = new Promise((resolve) => {
      this.#end = resolve;
    });
    let bye: Partial<Bye> = {};
    socket.addEventListener("message", ({ data }) => {
      const frame = parse(data);
      if (frame === null) this.drop("the server sent invalid JSON");
      else if (frame.type === "bye") bye = frame as unknown as Bye;
      else this.onFrame(frame);
    });
    socket.addEventListener("close", ({ code, reason }) => {
      const text = bye.reason || reason || "the connection was lost";
      const known = code >= 3000 ? code : 0;
      this.#end({ code: known, reason: text, retryAfterMs: bye.retry_after_ms ?? null });
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

function parse(data: unknown): Fields | null {
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
    const text = "this platform has no WebSocket; pass a class, such as that of the package ws";
    throw new ChatError("bad_request", `WebSocket: ${text}`);
  }
  let opening: WebSocketLike;
  try {
    opening = new Class(url, [SUBPROTOCOL]);
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
      fail("the gateway does not answer");
      opening.close();
    }, OPEN_MS);
    const socket = new Socket(opening);
    opening.addEventListener("open", () => {
      clearTimeout(timer);
      resolve(socket);
    });
    void socket.closed.then(({ reason }) => fail(reason));
  });
}
