// The login of this browser, and its client.
//
// `tierchat.session` in the browser's storage has the username, so that the client can start
// offline. The login itself is an HttpOnly cookie. A pasted access token is kept for this tab.
// Where the browser stores nothing, everything is in memory and ends with the page.

import {
  Account,
  BestEffortStore,
  ChatClient,
  ChatError,
  type Http,
  HttpClient,
  IndexedDbStore,
} from "tierchat";
import { browserStorage, isStorageRefused, tabStorage } from "../data/browser_storage";
import { setClockDifference } from "../i18n/format";
import { navigate } from "../page/router";
import { reportReceived } from "./delivery_receipts";

/** The source of a session's access tokens. */
type Login = { kind: "account" | "demo"; user: string } | { kind: "token"; token: string };

/** The reason for a logout that the user did not request. */
export type LogoutNotice = "ended" | "tokenRefused" | "erased" | null;

/** The reason why this page has no connection: nothing responds, or only the gateway refuses. */
export type ConnectionProblem = "network" | "gateway";

/** The state of the page's session. */
export type SessionState =
  | { kind: "starting" }
  | { kind: "unreachable" }
  | { kind: "loggedOut"; config: Http.ClientConfig; notice: LogoutNotice }
  | {
      kind: "open";
      config: Http.ClientConfig;
      client: ChatClient;
      user: string;
      isAccount: boolean;
      /** True once the chats are loaded, from this device or from the server. */
      isReady: boolean;
      /** Null after the first connection of this page. */
      problem: ConnectionProblem | null;
    };

/** Functions of a feature that the session calls; `user` is "" if nothing may be saved. */
export interface SessionHooks {
  /** Prepare a client before it connects. */
  open?: (client: ChatClient, user: string) => void;
  /** Start work when the chats are loaded, before pages are shown. */
  ready?: (client: ChatClient, user: string) => void;
  /** Delete the feature's data before the login ends in this browser. */
  logOut?: (client: ChatClient) => Promise<unknown>;
}

const SESSION = "tierchat.session";
const CONFIG = "tierchat.config";
const TOKEN = "tierchat.token";
const LOGOUT_PENDING = "tierchat.ending"; // set by an offline logout; deletes the cookie later
const KEY_PREFIX = "tierchat.";
const KEPT_KEYS = [CONFIG, "tierchat.appearance"]; // belong to the browser, not to the user
const CONFIG_MS = 10_000; // delay, so that more urgent requests run first
const DELETION_MS = 1_000; // other tabs may still have the empty database open
const FOREVER_MS = 2 ** 31 - 1;
const ATTEMPTS_MIN = 2; // failed connections before their reason is checked
const API_URL = location.origin;

/** Runs the session of this page; see {@link SessionState}. */
export class Session {
  #state: SessionState = { kind: "starting" };
  #login: Login | null = null;
  #account: Account | null = null;
  /** A logout in progress: the server may close the connection before it responds. */
  #runningLogout: Promise<void> | null = null;
  readonly #hooks: readonly SessionHooks[];
  readonly #listeners = new Set<() => void>();

  constructor(hooks: readonly SessionHooks[]) {
    this.#hooks = hooks;
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  readonly getState = (): SessionState => this.#state;

  /** Resume the login of this browser, or show the login page. */
  async start(): Promise<void> {
    addEventListener("storage", ({ key, newValue }) => {
      if (key === SESSION && newValue !== JSON.stringify(this.#login)) location.reload();
    });
    if (!browserStorage.canStore()) isStorageRefused.set(true);
    const saved = browserStorage.getJson<Http.ClientConfig>(CONFIG);
    const login = readLogin();
    if (login !== null && saved !== null) {
      setTimeout(() => void loadConfig().catch(() => {}), CONFIG_MS); // for the next start
      this.#open(saved, login);
      return;
    }
    this.#set({ kind: "starting" });
    try {
      const config = await loadConfig();
      if (login !== null) this.#open(config, login);
      else this.#set({ kind: "loggedOut", config, notice: null });
    } catch {
      this.#set({ kind: "unreachable" });
    }
  }

  /** Log in with username and password. */
  async logIn(user: string, password: string): Promise<void> {
    const account = await Account.logIn(buildAccountOptions(), user, password);
    this.#startSession({ kind: "account", user: account.user }, account);
  }

  /** Create an account and log in. */
  async register(user: string, password: string): Promise<void> {
    const account = await Account.register(buildAccountOptions(), user, password);
    this.#startSession({ kind: "account", user: account.user }, account);
  }

  /** Log in as a demo user of a development server. */
  async logInAsDemo(user: string): Promise<void> {
    await fetchDemoToken(user);
    this.#startSession({ kind: "demo", user });
  }

  /** Log in with an access token that the user has entered. */
  async logInWithToken(token: string): Promise<void> {
    tabStorage.setJson(TOKEN, token);
    this.#startSession({ kind: "token", token });
  }

  /**
   * Log out and remove all data of the user from this browser.
   *
   * `request` ends the login on the server and is called first. If it fails, the user stays logged
   * in.
   */
  async logOut(request?: () => Promise<unknown>, notice: LogoutNotice = null): Promise<void> {
    const running = this.#logOut(request, notice);
    this.#runningLogout = running.catch(() => {});
    await running;
  }

  async #logOut(request: (() => Promise<unknown>) | undefined, notice: LogoutNotice) {
    const state = this.#state;
    if (state.kind !== "open") return;
    await request?.();
    const isAccount = this.#login?.kind === "account";
    await Promise.all(this.#hooks.map(({ logOut }) => logOut?.(state.client)));
    this.#login = null;
    browserStorage.remove(SESSION); // other tabs reload and close their stores
    for (const key of tabStorage.keys()) tabStorage.remove(key);
    for (const key of browserStorage.keys()) {
      if (key.startsWith(KEY_PREFIX) && !KEPT_KEYS.includes(key)) browserStorage.remove(key);
    }
    if (isAccount) {
      browserStorage.setJson(LOGOUT_PENDING, true);
      await (hasCookies() ? endLogin() : this.#account?.logOut())?.catch(() => {});
    }
    await state.client.forget().catch(() => {});
    await deleteDatabase(getStoreName(state.user));
    navigate("/", { replace: true });
    this.#set({ kind: "loggedOut", config: state.config, notice });
  }

  #startSession(login: Login, account?: Account): void {
    if (this.#state.kind !== "loggedOut") return;
    if (login.kind !== "token") browserStorage.setJson(SESSION, login);
    browserStorage.remove(LOGOUT_PENDING);
    this.#open(this.#state.config, login, account);
  }

  #open(config: Http.ClientConfig, login: Login, account?: Account): void {
    this.#login = login;
    this.#account = account ?? null;
    const getToken = createTokenSource(login, account);
    const options = { url: config.gateway_url, apiUrl: API_URL, getToken };
    const client = new ChatClient({
      ...options,
      // The client retries until the server is available.
      connectTimeoutMs: FOREVER_MS,
      isOfflineFirst: true,
      syncDrafts: true,
      ...(login.kind === "token" ? {} : { store: openStore(login.user), shareTabs: login.user }),
    });
    const user = login.kind === "token" ? "" : login.user;
    for (const { open } of this.#hooks) open?.(client, user);
    const isAccount = login.kind === "account";
    this.#set({ kind: "open", config, client, user, isAccount, isReady: false, problem: null });
    void this.#run(client, config);
  }

  async #run(client: ChatClient, config: Http.ClientConfig): Promise<void> {
    const onVisibility = (): void => client.setActive(document.visibilityState === "visible");
    const stopReports = reportReceived(client);
    this.#reportProblems(client);
    try {
      await client.connect();
      if (this.#state.kind !== "open" || this.#state.client !== client) return;
      for (const { ready } of this.#hooks) ready?.(client, this.#state.user);
      this.#set({ ...this.#state, user: client.user, isReady: true });
      void client.preferences
        .load()
        .then(() => setClockDifference(client.http.clockDifferenceMs))
        .catch(() => {}); // offline: loaded after the next connection
      document.addEventListener("visibilitychange", onVisibility);
      onVisibility();
      for await (const _ of client.events()) {
        // The pages use listeners. This loop only waits until the client ends.
      }
    } catch (error) {
      await this.#handleEnd(client, config, error);
    } finally {
      document.removeEventListener("visibilitychange", onVisibility);
      stopReports();
    }
  }

  /** Set the reason for failed connections, until the first one succeeds. */
  #reportProblems(client: ChatClient): void {
    let attempts = 0;
    const set = (problem: ConnectionProblem | null): void => {
      if (this.#state.kind === "open" && this.#state.client === client) {
        this.#set({ ...this.#state, problem });
      }
    };
    const unsubscribe = client.on((event) => {
      if (event.type === "connected") {
        unsubscribe();
        set(null);
      }
      if (event.type !== "disconnected") return;
      attempts += 1;
      if (attempts < ATTEMPTS_MIN) return;
      const check = new HttpClient({ apiUrl: API_URL }).call("get_client_config", {});
      const report = (problem: ConnectionProblem) => (): void => {
        if (!client.isOnline) set(problem);
      };
      check.then(report("gateway"), report("network"));
    });
  }

  async #handleEnd(client: ChatClient, config: Http.ClientConfig, error: unknown): Promise<void> {
    await this.#runningLogout;
    if (this.#state.kind !== "open" || this.#state.client !== client) return;
    const login = this.#login;
    const code = error instanceof ChatError ? error.code : "internal";
    if (code === "conflict" && login !== null && this.#state.isReady === false) {
      // The store has another format or user. Only drafts are lost; the server has everything else.
      await client.forget().catch(() => {});
      this.#open(config, login);
      return;
    }
    await client.close().catch(() => {});
    if (code === "unauthenticated" || code === "forbidden") {
      const isToken = login?.kind === "token";
      this.#login = null;
      browserStorage.remove(SESSION);
      tabStorage.remove(TOKEN);
      const isRefused = isToken && !this.#state.isReady;
      this.#set({ kind: "loggedOut", config, notice: isRefused ? "tokenRefused" : "ended" });
      return;
    }
    this.#set({ kind: "unreachable" });
  }

  #set(state: SessionState): void {
    this.#state = state;
    for (const listener of this.#listeners) listener();
  }
}

async function loadConfig(): Promise<Http.ClientConfig> {
  if (browserStorage.getJson(LOGOUT_PENDING) === true) await endLogin();
  const config = await new HttpClient({ apiUrl: API_URL }).call("get_client_config", {});
  browserStorage.setJson(CONFIG, config);
  return config;
}

const getStoreName = (user: string): string => `tierchat-${user}`;

function openStore(user: string): BestEffortStore {
  const database = new IndexedDbStore(getStoreName(user));
  return new BestEffortStore(database, () => isStorageRefused.set(true));
}

function deleteDatabase(name: string): Promise<void> {
  const deletion = new Promise<void>((resolve) => {
    const request = indexedDB.deleteDatabase(name);
    request.onsuccess = request.onerror = () => resolve();
    setTimeout(resolve, DELETION_MS);
  });
  return deletion.catch(() => {}); // refused: there is none
}

/** Delete the login on the server, and its cookie. */
async function endLogin(): Promise<void> {
  const http = new HttpClient({
    apiUrl: API_URL,
    credentials: "same-origin",
    headers: { "x-chat-client": "web" },
  });
  try {
    await http.call("log_out", { body: {} });
  } catch (error) {
    if (!(error instanceof ChatError) || error.isTemporary) throw error;
  }
  browserStorage.remove(LOGOUT_PENDING);
}

/** Return whether the browser stores cookies; otherwise, the login is in memory. */
const hasCookies = (): boolean => navigator.cookieEnabled;

function buildAccountOptions() {
  return { apiUrl: API_URL, useCookie: hasCookies(), device: getDeviceName() };
}

/**
 * Return a function that returns a valid access token. Calls at the same time share one request,
 * and only one tab sends it at a time.
 */
function createTokenSource(login: Login, initialAccount?: Account): () => Promise<string> {
  let account = initialAccount ?? null;
  let demo: { token: string; expiresAtMs: number } | null = null;
  const getToken = async (): Promise<string> => {
    if (login.kind === "token") return login.token;
    if (login.kind === "demo") {
      if (demo === null || demo.expiresAtMs - 30_000 < Date.now())
        demo = await fetchDemoToken(login.user);
      return demo.token;
    }
    const resume = (): Promise<Account> => Account.resume(buildAccountOptions());
    account ??= await runExclusively("tierchat:refresh", resume);
    if (account.user !== login.user) {
      throw new ChatError("unauthenticated", "another user has logged in");
    }
    return account.getToken();
  };
  let running: Promise<string> | null = null;
  return () => {
    running ??= getToken().finally(() => {
      running = null;
    });
    return running;
  };
}

async function runExclusively<T>(name: string, work: () => Promise<T>): Promise<T> {
  let result = null as Promise<T> | null;
  const run = (): Promise<T> => (result = work());
  // Browsers refuse locks where they refuse storage, and have none without HTTPS.
  await navigator.locks?.request(name, run).catch(() => {});
  return result ?? work();
}

async function fetchDemoToken(user: string): Promise<{ token: string; expiresAtMs: number }> {
  const http = new HttpClient({ apiUrl: API_URL });
  const response = (await http.request("POST", "/v1/dev/login", { user })) as {
    token: string;
    expires_at: number;
  };
  return { token: response.token, expiresAtMs: response.expires_at * 1000 };
}

function readLogin(): Login | null {
  const token = tabStorage.getJson<string>(TOKEN);
  if (typeof token === "string") return { kind: "token", token };
  const login = browserStorage.getJson<Login>(SESSION);
  return login !== null && login.kind !== "token" && typeof login.user === "string" ? login : null;
}

/** Return the name of this browser for the list of devices. */
function getDeviceName(): string {
  const { userAgent } = navigator;
  const findName = (names: readonly (readonly [string, string])[]): string | undefined =>
    names.find(([token]) => userAgent.includes(token))?.[1];
  const browser = findName([
    ["Firefox/", "Firefox"],
    ["Edg/", "Edge"],
    ["Chrome/", "Chrome"],
    ["Safari/", "Safari"],
  ]);
  const system = findName([
    ["Android", "Android"],
    ["iPhone", "iPhone"],
    ["iPad", "iPad"],
    ["Windows", "Windows"],
    ["Mac OS", "macOS"],
    ["Linux", "Linux"],
  ]);
  return [browser ?? "Browser", system].filter(Boolean).join(" · ");
}
