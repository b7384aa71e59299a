// Context for components: the client, the labels and the names of users.

import type { ReactElement, ReactNode } from "react";
import { createContext, useContext, useEffect, useMemo } from "react";

import type { ChatClient } from "../client/client.js";
import { ClientStore } from "./client_store.js";
import { ENGLISH, type Labels } from "./labels.js";

/** Labels and names of users. */
interface Texts {
  labels: Labels;
  getName: (user: string) => string;
}

const ClientContext = createContext<ClientStore | null>(null);
const TextsContext = createContext<Texts>({ labels: ENGLISH, getName: (user) => user });

/** Properties of {@link ChatProvider}. */
export interface ChatProviderProps {
  /** The client. It can be connected before or after the first render. */
  client: ChatClient;
  /** Texts of the components, for another language. */
  labels?: Partial<Labels>;
  /** Returns the name that components show for a user; by default the user id. */
  getName?: (user: string) => string;
  children?: ReactNode;
}

/**
 * Provides a client to the components below it. It does not connect or close the client.
 *
 * It consumes the client's events: events that arrived before `client.events()` are not returned.
 */
export function ChatProvider(props: ChatProviderProps): ReactElement {
  const { client, labels, getName, children } = props;
  const store = ClientStore.get(client);
  useEffect(() => store.retain(), [store]);
  const texts = useMemo(() => {
    return { labels: { ...ENGLISH, ...labels }, getName: getName ?? ((user: string) => user) };
  }, [labels, getName]);
  return (
    <ClientContext value={store}>
      <TextsContext value={texts}>{children}</TextsContext>
    </ClientContext>
  );
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

/** Return the texts of the nearest {@link ChatProvider}. @internal */
export function useTexts(): Texts {
  return useContext(TextsContext);
}
