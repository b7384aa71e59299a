// Context for components: the session.

import { createContext, useContext, useSyncExternalStore } from "react";
import type { Session, SessionState } from "./session";

const Context = createContext<Session | null>(null);

/** Provides the session. */
export const SessionProvider = Context.Provider;

/** Return the session, for login and logout. */
export function useSession(): Session {
  const session = useContext(Context);
  if (session === null) throw new Error("there is no SessionProvider");
  return session;
}

/** Return the state of the session. */
export function useSessionState(): SessionState {
  const session = useSession();
  return useSyncExternalStore(session.subscribe, session.getState);
}

/** Return the open session: its client, user and configuration. Needs a logged-in user. */
export function useOpenSession(): SessionState & { kind: "open" } {
  const state = useSessionState();
  if (state.kind !== "open") throw new Error("nobody is logged in");
  return state;
}
