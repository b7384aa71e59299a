// Replays the recorded histories with components, which must show the state's messages.

import assert from "node:assert/strict";
import { test } from "node:test";
import type { ReactElement } from "react";
import type { Chat } from "tierchat";
import { type MessagesView, useChat, useChats, useMessages, useUnread } from "tierchat/react";
import type * as sdk from "tierchat/state";
import { encode, files, type History, load, Player } from "./histories/player.js";
import { type Rendered, render } from "./react/rendering.js";
import { StateClient } from "./react/state_client.js";

/** The components of one client, with their last rendered values. */
class Screen {
  readonly client: StateClient;
  readonly #views = new Map<string, MessagesView>();
  readonly #chats = new Map<string, Chat>();
  #list: readonly Chat[] = [];
  #unread = 0;
  #tree!: Rendered;

  constructor(state: sdk.ClientState) {
    this.client = new StateClient(state);
  }

  async open(): Promise<void> {
    const screen = this;
    function Messages({ id }: { id: string }): null {
      screen.#views.set(id, useMessages(id));
      screen.#chats.set(id, useChat(id));
      return null;
    }
    function Chats(): ReactElement {
      screen.#list = useChats();
      screen.#unread = useUnread();
      return (
        <>
          {screen.#list.map(({ id }) => (
            <Messages key={id} id={id} />
          ))}
        </>
      );
    }
    this.#tree = await render(this.client, <Chats />);
  }

  /** Deliver events, and check what the components show. */
  async deliver(events: sdk.QueuedEvent[], where: string): Promise<void> {
    await this.#tree.run(() => this.client.flush(events));
    const { state } = this.client;
    const chats = [...state.chats.values()].filter(({ isLeft }) => !isLeft);
    assert.deepEqual(listIds(this.#list), listIds(chats), where);
    const unread = chats.reduce((sum, chat) => sum + chat.unread, 0);
    assert.equal(this.#unread, unread, where);
    for (const chat of chats) this.#check(chat, `${where}: ${chat.id}`);
  }

  #check(chat: sdk.ChatState, where: string): void {
    const view = this.#views.get(chat.id);
    const expectedMessages = chat.log.messages(Date.now() / 1000);
    const messages = view?.messages ?? [];
    const count = expectedMessages.length;
    const newest = count === 0 ? messages : messages.slice(-count);
    assert.deepEqual(encode(newest), encode(expectedMessages), where);
    const seqs = messages.map(({ seq }) => seq);
    assert.deepEqual(
      seqs,
      [...new Set(seqs)].sort((a, b) => a - b),
      where,
    );
    const { name, top, read, unread, isEnded } = this.#chats.get(chat.id) as Chat;
    const shown = [name, top, read, unread, isEnded];
    assert.deepEqual(shown, [chat.name, chat.top, chat.read, chat.unread, chat.isEnded], where);
    const { user } = this.client;
    const own = messages.filter(({ sender }) => sender === user).map(({ ref }) => ref);
    const sends = [...this.client.state.outbox].filter(({ chat: id, fields }) => {
      return id === chat.id && fields["type"] === "send";
    });
    const expected = sends.map(({ ref }) => ref).filter((ref) => !own.includes(ref));
    const pending = (view?.pending ?? []).filter(({ fields }) => fields["type"] === "send");
    assert.deepEqual(
      pending.map(({ ref }) => ref),
      expected,
      where,
    );
  }

  close(): Promise<void> {
    return this.#tree.unmount();
  }
}

function listIds(chats: readonly { id: string }[]): string[] {
  return chats.map(({ id }) => id).sort();
}

async function show(history: History): Promise<number> {
  const player = new Player(history);
  let screen = new Screen(player.state);
  await screen.open();
  let checks = 0;
  await player.play(async ({ state, number }, events) => {
    if (state !== screen.client.state) {
      await screen.close(); // a reload
      screen = new Screen(state);
      await screen.open();
    }
    if (events.length === 0 && state.touched.size === 0) return;
    await screen.deliver(events, `${history.name}, call ${number}`);
    checks += 1;
  });
  await screen.close();
  return checks;
}

for (const history of files.flatMap(load)) {
  test(history.name, async () => assert.ok((await show(history)) > 0));
}
