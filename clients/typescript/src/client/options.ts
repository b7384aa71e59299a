// Options of a client.

import type { Bounds } from "../state/model.js";
import type { Store } from "../stores/store.js";
import type { WebSocketConstructor } from "./socket.js";

/** Options of a {@link ChatClient}. */
export interface ClientOptions {
  /** Address of the gateway: `wss://…` or `ws://…`. */
  url: string;
  /** Return an access token. Called for each connection, and before the token expires. */
  getToken: () => string | Promise<string>;
  /** Address of the HTTP API, for files, pins, push and everything in `client.http`. */
  apiUrl?: string;
  /** Name of this device; must not change. By default the stored name, or a random one. */
  device?: string;
  /** Keeps messages, drafts and the outbox; by default in memory only. */
  store?: Store;
  /** Resolve `connect` before there is a connection, if the store knows the user. */
  isOfflineFirst?: boolean;
  /**
   * Share one connection between the tabs of a browser. Needs Web Locks, BroadcastChannel, and a
   * store that all tabs open, such as `IndexedDbStore`. The value names the group of tabs, for
   * example by user.
   */
  shareTabs?: string;
  /** Keep unsent texts the same on all devices of the user. Needs `apiUrl`. */
  syncDrafts?: boolean;
  /** Maximum number of stored messages per chat; 200 by default. */
  storedEntriesMax?: number;
  /** Size limits. */
  bounds?: Partial<Bounds>;
  /** A WebSocket class, if the platform has none. On Node 20, pass that of the package `ws`. */
  WebSocket?: WebSocketConstructor;
  /** Maximum wait of `connect` for a gateway, in milliseconds; 10,000 by default. */
  connectTimeoutMs?: number;
}
