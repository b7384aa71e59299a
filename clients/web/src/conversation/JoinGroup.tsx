// A group that the user is not a member of: its name and size, and a button to join it.

import { MessageCircleOff, Users } from "lucide-react";
import { useState } from "react";
import { newRef } from "tierchat";
import { useClient } from "tierchat/react";
import { useAttempt } from "../data/use_attempt";
import { useApi } from "../data/use_load";
import { Button, EmptyState } from "../design";
import { useText } from "../i18n";
import { Link } from "../page/router";
import { AnotherChat } from "../share/AnotherChat";

interface JoinGroupProps {
  chat: string;
  /** Called when the user is a member. */
  onJoin: () => void;
}

/** Shows a group that is open to everyone; otherwise, that there is no such chat. */
export function JoinGroup({ chat, onJoin }: JoinGroupProps) {
  const text = useText();
  const client = useClient();
  const attempt = useAttempt();
  const { data, isLoading } = useApi("get_group_preview", { chat });
  const [isBusy, setBusy] = useState(false);
  const [ref] = useState(newRef);
  if (data === null && isLoading) return null;
  if (data === null) {
    return (
      <EmptyState
        icon={MessageCircleOff}
        title={text.conversation.notFound}
        action={
          <>
            <AnotherChat chat={chat} />
            <Link to="/chats">{text.common.backToChats}</Link>
          </>
        }
      />
    );
  }
  const join = async (): Promise<void> => {
    setBusy(true);
    if (await attempt(() => client.http.call("join", { chat, body: { ref } }))) onJoin();
    setBusy(false);
  };
  const facts = [text.group.memberCount(data.count), data.topic].filter(Boolean);
  return (
    <EmptyState
      icon={Users}
      title={data.name || text.chats.unnamedGroup}
      action={
        <Button variant="primary" isBusy={isBusy} onClick={() => void join()}>
          {text.group.join}
        </Button>
      }
    >
      {facts.join(" · ")}
    </EmptyState>
  );
}
