// Forwarding: sends the text and the files of messages to other chats.

import type { Attachment, Chat, ChatClient, Draft, Message } from "tierchat";

/** Most chats that messages are forwarded to at once. */
export const TARGETS_MAX = 10;

/**
 * Send copies of messages to chats. Files belong to one chat: they are uploaded for each.
 *
 * Nothing is sent before all files are there.
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
      drafts.push([chat, { text: message.body, attachments }]);
    }
  }
  for (const [chat, draft] of drafts) chat.send(draft);
}
