// The client of a tree of components.

import { createContext, useContext, useEffect, type ReactElement, type ReactNode } from "react";

import type { ChatClient } from "../client/client.js";
import { ClientStore } from "./client_store.js";

const ClientContext = createContext<ClientStore | null>(null);

/** Properties of {@link ChatProvider}. */
export interface ChatProviderProps {
  /** A client; it can be connected before or after this is rendered. */
  client: ChatClient;
  children?: ReactNode;
}

/**
 * Gives the components below it a client. It does not connect or close the client.
 *
 * It consumes the client's events, so that `client.events()` has only later ones.
 */
export function ChatProvider({ client, children }: ChatProviderProps): ReactElement {
  const store = ClientStore.of(client);
  useEffect(() => store.retain(), [store]);
  return <ClientContext value={store}>{children}</ClientContext>;
}

/** Return the store of the nearest {@link ChatProvider}. @internal */
export function useStore(): ClientStore {
  const store = useContext(ClientContext);
  if (store === null) throw new Error("this component needs a ChatProvider above it");
  return store;
}

/** Return the client of the nearest {@link ChatProvider}. */
export function useClient(): ChatClient {
  return useStore().client;
}
