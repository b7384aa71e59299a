// A login with username and password, which renews its access token.

import type { Granted } from "../generated/http.js";
import { ChatError } from "../state/errors.js";
import { HttpClient } from "./http_client.js";

const RENEWAL_MARGIN_MS = 30_000; // before the expiry of a token

/** Options of a login. */
export interface AccountOptions {
  /** Address of the HTTP API. */
  apiUrl: string;
  /** Name of this device in the user's list of devices. */
  device?: string;
  /**
   * Keep the login in HttpOnly cookies, for browsers on the same site. Otherwise, save the tokens
   * passed to `onRefreshToken` where only this application can read them.
   */
  useCookie?: boolean;
  /** Called with each new refresh token. A refresh token is valid for one use. */
  onRefreshToken?: (token: string) => void | Promise<void>;
}

/** A login. Pass `account.getToken` to {@link ChatClient}. */
export class Account {
  readonly #http: HttpClient;
  readonly #options: AccountOptions;
  #token = "";
  #user = "";
  #refreshToken: string | null = null;
  #expiresAtMs = 0;
  #refreshing: Promise<void> | null = null;

  private constructor(options: AccountOptions) {
    this.#options = options;
    // The server accepts the cookie only with this header, which forms of other sites cannot send.
    const cookie = { credentials: "include", headers: { "x-chat-client": "web" } } as const;
    const { apiUrl, useCookie } = options;
    this.#http = new HttpClient({ apiUrl, ...(useCookie === true ? cookie : {}) });
  }

  /** Log in with username and password. */
  static async logIn(options: AccountOptions, user: string, password: string): Promise<Account> {
    const account = new Account(options);
    const body = { user, password, ...account.#loginFields() };
    await account.#saveTokens(await account.#http.call("log_in", { body }));
    return account;
  }

  /** Create an account and log in. */
  static async register(options: AccountOptions, user: string, password: string): Promise<Account> {
    const account = new Account(options);
    const body = { user, password, ...account.#loginFields() };
    await account.#saveTokens(await account.#http.call("register", { body }));
    return account;
  }

  /**
   * Log in; if the user does not exist, create the account.
   *
   * @throws {@link ChatError} `unauthenticated` if the user exists and the password is wrong.
   */
  static async logInOrRegister(
    options: AccountOptions,
    user: string,
    password: string,
  ): Promise<Account> {
    try {
      return await Account.logIn(options, user, password);
    } catch (loginError) {
      if (!(loginError instanceof ChatError) || loginError.code !== "unauthenticated") {
        throw loginError;
      }
      return Account.register(options, user, password).catch((error: unknown) => {
        // The name is taken, so the password was wrong.
        throw error instanceof ChatError && error.code === "conflict" ? loginError : error;
      });
    }
  }

  /** Resume a login with a refresh token, or with the cookie if there is none. */
  static async resume(options: AccountOptions, refreshToken?: string): Promise<Account> {
    const account = new Account(options);
    account.#refreshToken = refreshToken ?? null;
    await account.#refresh();
    return account;
  }

  /** The user id. */
  get user(): string {
    return this.#user;
  }

  /** Return a valid access token; it is renewed shortly before it expires. */
  readonly getToken = async (): Promise<string> => {
    if (Date.now() > this.#expiresAtMs - RENEWAL_MARGIN_MS) {
      this.#refreshing ??= this.#refresh().finally(() => {
        this.#refreshing = null;
      });
      await this.#refreshing;
    }
    return this.#token;
  };

  /** End the login on the server. */
  async logOut(): Promise<void> {
    const body = this.#refreshToken === null ? {} : { refresh_token: this.#refreshToken };
    await this.#http.call("log_out", { body });
    this.#expiresAtMs = 0;
  }

  #loginFields(): { device?: string; cookie: boolean } {
    const { device, useCookie } = this.#options;
    return { ...(device === undefined ? {} : { device }), cookie: useCookie ?? false };
  }

  async #refresh(): Promise<void> {
    const body = this.#refreshToken === null ? {} : { refresh_token: this.#refreshToken };
    await this.#saveTokens(await this.#http.call("refresh", { body }));
  }

  async #saveTokens(tokens: Granted): Promise<void> {
    this.#token = tokens.token;
    this.#user = tokens.user;
    this.#expiresAtMs = Date.now() + tokens.expires_in_s * 1000; // by this clock
    if (tokens.refresh_token != null) {
      this.#refreshToken = tokens.refresh_token;
      await this.#options.onRefreshToken?.(tokens.refresh_token);
    }
  }
}
