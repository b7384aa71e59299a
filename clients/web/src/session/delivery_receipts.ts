// Reports messages of direct chats as received, so that their senders see "Delivered".

import type { ChatClient } from "tierchat";

const DELAY_MS = 1_000; // one report for several messages; none for messages read meanwhile

/** Report new messages until the returned function is called. Only the leader tab reports. */
export function reportReceived(client: ChatClient): () => void {
  const chats = new Set<string>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const report = (): void => {
    timer = undefined;
    for (const id of chats) {
      const chat = client.chat(id);
      const [, received] = chat.marks[client.user] ?? [0, 0];
      if (received < chat.top) chat.markReceived().catch(() => {}); // retried with the next message
    }
    chats.clear();
  };
  const unsubscribe = client.on((event) => {
    if (event.type !== "messageAdded" || !client.isLeader) return;
    const isOwn = event.message.sender === client.user;
    if (isOwn || client.chat(event.chat).kind !== "direct") return;
    chats.add(event.chat);
    timer ??= setTimeout(report, DELAY_MS);
  });
  return () => {
    clearTimeout(timer);
    unsubscribe();
  };
}
