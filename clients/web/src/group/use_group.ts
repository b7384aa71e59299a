// The info of a chat from the server. It is reloaded after changes while its details are shown.

import { useCallback } from "react";
import type { Http } from "tierchat";
import { useClient, useEvent } from "tierchat/react";
import { type Loaded, useApi } from "../data/use_load";
import { isManager, type Role } from "../directory/roles";

/** A chat and the user's permissions in it. */
export interface Group {
  info: Http.ChatInfo;
  myRole: Role | undefined;
  isManager: boolean;
  /** Reload the chat, after a change. */
  reload: () => void;
}

/** Load a chat; reload it when its members or settings change. */
export function useChatInfo(chat: string): Loaded<Http.ChatInfo> {
  const loaded = useApi("get_chat", { chat });
  const { reload } = loaded;
  const onChange = useCallback(
    (event: { chat: string | null }) => {
      if (event.chat === chat) reload();
    },
    [chat, reload],
  );
  useEvent("memberChanged", onChange);
  useEvent("chatChanged", onChange);
  return loaded;
}

/** Return a chat with the user's permissions in it. */
export function useGroup(info: Http.ChatInfo, reload: () => void): Group {
  const { user } = useClient();
  const myRole = info.kind === "group" ? info.roles?.[user] : undefined;
  return { info, myRole, isManager: isManager(myRole), reload };
}
