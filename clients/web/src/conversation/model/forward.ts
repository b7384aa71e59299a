// Forwarding: sends the text and the files of messages to other chats.

import type { Attachment, Chat, ChatClient, Draft, Message } from "tierchat";

/** Maximum number of chats per forward. */
export const TARGETS_MAX = 10;

/**
 * Send copies of messages to chats. A file belongs to one chat, so it is uploaded for each chat.
 *
 * Nothing is sent until all files are uploaded.
 *
 * @throws ChatError: a file cannot be loaded or stored.
 */
export async function forwardMessages(
  client: ChatClient,
  targets: readonly Chat[],
  messages: readonly Message[],
): Promise<void> {
  const drafts: [Chat, Draft][] = [];
  for (const message of messages) {
    const files: { name: string; content: Blob }[] = [];
    for (const { id, type, name } of message.attachments ?? []) {
      const content = await client.download(id, { seq: message.seq });
      files.push({ name, content: new Blob([content], { type }) });
    }
    if (message.body === "" && files.length === 0) continue;
    for (const chat of targets) {
      const attachments: Attachment[] = [];
      for (const { name, content } of files) {
        attachments.push(await chat.upload(content, { name }));
      }
      drafts.push([chat, { body: message.body, attachments }]);
    }
  }
  for (const [chat, draft] of drafts) chat.send(draft);
}
