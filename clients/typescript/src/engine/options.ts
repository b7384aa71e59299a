// Options of a client.

import type { Bounds } from "../state/bounds.js";
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
  /** Name of this device; must not change. By default the stored name, or a random name. */
  device?: string;
  /** Stores messages, drafts and the outbox; by default in memory only. */
  store?: Store;
  /** If the store has a user, `connect` resolves without waiting for the connection. */
  isOfflineFirst?: boolean;
  /**
   * Share one connection between the tabs of a browser. The value is the name of the group of tabs,
   * for example the user. Needs Web Locks, BroadcastChannel and a store that all tabs open, such as
   * `IndexedDbStore`.
   */
  shareTabs?: string;
  /** Synchronize drafts between the user's devices. Needs `apiUrl`. */
  syncDrafts?: boolean;
  /** Maximum number of stored messages per chat; 200 by default. */
  storedEntriesMax?: number;
  /** Size limits. */
  bounds?: Partial<Bounds>;
  /** A WebSocket class, if the platform has none. On Node 20, pass the class of package `ws`. */
  WebSocket?: WebSocketConstructor;
  /** Maximum wait of `connect` for a gateway, in milliseconds; 10,000 by default. */
  connectTimeoutMs?: number;
}
