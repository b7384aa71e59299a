// The sources of a message window: the messages on this device, and pages from the server.

import type { ChatClient, Message } from "tierchat";

/** A page of a chat's entries in ascending seq, without gaps. */
export interface SourcePage {
  entries: readonly Message[];
  hasOlder: boolean;
  hasNewer: boolean;
}

/** Reads one chat. */
export interface HistorySource {
  /** Return the newest messages on this device, ascending. */
  listLocal(): readonly Message[];
  /** True if this device has never loaded the newest messages. */
  readonly needsHistory: boolean;
  /** The user has cleared the chat up to this seq; no page contains these entries. */
  readonly clearedUpto: number;
  loadNewest(limit: number): Promise<SourcePage>;
  loadBefore(seq: number, limit: number): Promise<SourcePage>;
  loadAfter(seq: number, limit: number): Promise<SourcePage>;
  loadAround(seq: number, limit: number): Promise<SourcePage>;
  /** Return the seq of the first message at or after a time (in milliseconds), or null. */
  findSeqAt(timeMs: number): Promise<number | null>;
}

/** Return the source of a chat of a client. */
export function createHistorySource(client: ChatClient, chatId: string): HistorySource {
  const chat = client.chat(chatId);
  const buildPage = (
    messages: readonly Message[],
    hasOlder: boolean,
    hasNewer: boolean,
  ): SourcePage => {
    const entries = messages.filter(({ seq }) => seq > chat.clearedUpto);
    return { entries, hasOlder: hasOlder && entries.length === messages.length, hasNewer };
  };
  return {
    listLocal: () => chat.messages,
    get needsHistory() {
      return chat.needsHistory;
    },
    get clearedUpto() {
      return chat.clearedUpto;
    },
    async loadNewest(limit) {
      const page = await chat.history({ limit });
      return buildPage(page.messages, page.hasMore, false);
    },
    async loadBefore(seq, limit) {
      const page = await chat.history({ before: seq, limit });
      return buildPage(page.messages, page.hasMore, true);
    },
    async loadAfter(seq, limit) {
      const page = await chat.history({ after: seq, limit });
      return buildPage(page.messages, true, page.hasMore);
    },
    async loadAround(seq, limit) {
      const page = await client.http.call("list_messages_around", { chat: chatId, seq, limit });
      return buildPage(page.messages as readonly Message[], page.older, page.newer);
    },
    async findSeqAt(timeMs) {
      const from = Math.max(0, timeMs) * 1000;
      const options = { chat: chatId, from, order: "oldest", limit: 1 } as const;
      const page = await client.http.call("list_messages_between", options);
      return page.items[0]?.seq ?? null;
    },
  };
}
