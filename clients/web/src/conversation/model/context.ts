// Context for components: the open conversation.

import { createContext, useContext } from "react";
import type { ConversationModel } from "./conversation_model";

const Context = createContext<ConversationModel | null>(null);

/** Provides the open conversation. */
export const ConversationProvider = Context.Provider;

/** Return the open conversation. */
export function useConversation(): ConversationModel {
  const model = useContext(Context);
  if (model === null) throw new Error("there is no ConversationProvider");
  return model;
}
