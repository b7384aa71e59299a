// Typed calls of the HTTP API. Operations and types are generated from its OpenAPI document.

import { OPERATIONS, type Operations, type Problem } from "../generated/http.js";
import { ChatError } from "../state/errors.js";

const TIMEOUT_MS = 15_000;

/** The name of an operation of the HTTP API, such as `list_messages`. */
export type OperationId = keyof Operations;

/** Arguments of a call: path and query parameters, and a body if the operation has one. */
export type CallOptions<Id extends OperationId> = Operations[Id]["params"] &
  (Operations[Id]["body"] extends undefined ? unknown : { body: Operations[Id]["body"] });

/** The result of an operation. */
export type CallResult<Id extends OperationId> = Operations[Id]["result"];

/** Options of an {@link HttpClient}. */
export interface HttpClientOptions {
  /** Address of the API, such as `https://chat.example`. */
  apiUrl: string;
  /** Return an access token; without it, only public operations work. */
  getToken?: () => string | Promise<string>;
  /** When to send cookies, as in `fetch`; "omit" by default. */
  credentials?: "omit" | "same-origin" | "include";
  /** Headers for all requests. */
  headers?: Readonly<Record<string, string>>;
}

/** Calls the HTTP API: `await http.call("list_messages", { chat, limit: 50 })`. */
export class HttpClient {
  readonly #options: HttpClientOptions;
  readonly #base: string;
  #clockDifferenceMs = 0;

  constructor(options: HttpClientOptions) {
    this.#options = options;
    this.#base = options.apiUrl.replace(/\/+$/, "");
  }

  /** The server's time minus this device's, to a second; 0 until the API has responded. */
  get clockDifferenceMs(): number {
    return this.#clockDifferenceMs;
  }

  /**
   * Call an operation. Calls with the same idempotency `key` within 24 hours take effect once.
   *
   * @throws {@link ChatError} with the server's error code; `unavailable`: there was no response.
   */
  async call<Id extends OperationId>(
    id: Id,
    options: CallOptions<Id>,
    key?: string,
  ): Promise<CallResult<Id>> {
    const [method, path, query] = OPERATIONS[id];
    const { body, ...params } = options as Record<string, unknown>;
    const resolvedPath = path.replace(/\{(\w+)\}/g, (_, name: string) =>
      encodeURIComponent(String(params[name])),
    );
    const pairs = query
      .filter((name) => params[name] !== undefined)
      .flatMap((name): [string, string][] => {
        const value = params[name];
        return (Array.isArray(value) ? value : [value]).map((item) => [name, String(item)]);
      });
    const search = pairs.length > 0 ? `?${new URLSearchParams(pairs).toString()}` : "";
    const headers: Record<string, string> = {};
    if (key !== undefined) headers["idempotency-key"] = key;
    return (await this.request(method, resolvedPath + search, body, headers)) as CallResult<Id>;
  }

  /** Send a request to a path of the API; return its JSON, or null without a body. */
  async request(
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<unknown> {
    const response = await this.#send(method, path, body, headers);
    return response.json().catch(() => null);
  }

  /** Return the content of a path of the API, such as a picture. */
  async download(path: string): Promise<Blob> {
    return (await this.#send("GET", path)).blob();
  }

  async #send(
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<Response> {
    const token = await this.#options.getToken?.();
    const allHeaders: Record<string, string> = { ...this.#options.headers, ...headers };
    if (token !== undefined) allHeaders["authorization"] = `Bearer ${token}`;
    if (body !== undefined) allHeaders["content-type"] = "application/json";
    let response: Response;
    try {
      response = await fetch(this.#base + path, {
        method,
        headers: allHeaders,
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        credentials: this.#options.credentials ?? "omit",
        signal: AbortSignal.timeout(TIMEOUT_MS),
      });
    } catch (cause) {
      throw new ChatError("unavailable", "the API does not respond", { cause });
    }
    const serverMs = Date.parse(response.headers.get("date") ?? ""); // hidden on other sites
    if (!Number.isNaN(serverMs)) this.#clockDifferenceMs = serverMs - Date.now();
    if (response.ok) return response;
    const problem: unknown = await response.json().catch(() => null);
    throw parseProblem(response, problem as Partial<Problem> | null);
  }
}

function parseProblem(response: Response, problem: Partial<Problem> | null): ChatError {
  const code = problem?.code ?? (response.status === 404 ? "not_found" : "internal");
  const advice = (problem as { retry_after_ms?: number } | null)?.retry_after_ms ?? null;
  const text = problem?.detail ?? `HTTP ${response.status}`;
  return new ChatError(code, text, { retryAfterMs: advice });
}
