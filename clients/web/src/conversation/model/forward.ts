// Forwarding: sends the text and the files of messages to another chat.

import type { Attachment, Chat, ChatClient, Message } from "tierchat";

/**
 * Send copies of messages to a chat. Files belong to one chat: they are uploaded again.
 *
 * @throws ChatError: a file cannot be loaded or stored. Messages before it are sent.
 */
export async function forwardMessages(
  client: ChatClient,
  target: Chat,
  messages: readonly Message[],
): Promise<void> {
  for (const message of messages) {
    const attachments: Attachment[] = [];
    for (const file of message.attachments ?? []) {
      const content = await client.download(file.id, { seq: message.seq });
      const copy = new Blob([content], { type: file.type });
      attachments.push(await target.upload(copy, { name: file.name }));
    }
    if (message.body === "" && attachments.length === 0) continue;
    target.send({ text: message.body, attachments });
  }
}
