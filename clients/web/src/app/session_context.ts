// The session, for components.

import { createContext, useContext, useSyncExternalStore } from "react";
import type { Session, SessionState } from "./session";

const Context = createContext<Session | null>(null);

/** Provides the session. */
export const SessionProvider = Context.Provider;

/** Return the session, for logging in and out. */
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

/** Return the open session: its client, user and configuration. For pages behind the login. */
export function useOpenSession(): SessionState & { kind: "open" } {
  const state = useSessionState();
  if (state.kind !== "open") throw new Error("nobody is logged in");
  return state;
}
