import type { ChatClient } from "./client/client.js";

/** Types come from the documents: a wrong field of the request or of its reply does not compile. */
export async function listBanned(client: ChatClient, chat: string): Promise<string[]> {
  const page = await client.request({ type: "bans", chat, limit: 1 });
  return page.banned.map((each) => each.user);
}
