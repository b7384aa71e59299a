// The hooks of tierchat/react: what they return, and which components they render.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  memo,
  type ReactElement,
  type ReactNode,
  startTransition,
  useLayoutEffect,
  useState,
} from "react";
import type { Chat } from "tierchat";
import * as hooks from "tierchat/react";
import { ClientStore } from "#dist/react/client_store.js";
import { Counts, render } from "./react/rendering.js";
import { buildEntry, StateClient } from "./react/state_client.js";

const [A, B] = ["g-a", "g-b"];

/** Return a connected client with two chats that have one message each. */
function connected(): StateClient {
  const client = new StateClient();
  client.connect();
  client.entry(A, 1);
  client.entry(B, 1);
  return client;
}

function Texts({ id, counts }: { id: string; counts?: Counts }): ReactElement {
  counts?.add(`messages ${id}`);
  return (
    <p id={id}>
      {hooks
        .useMessages(id)
        .messages.map(({ body }) => body)
        .join("|")}
    </p>
  );
}

function Name({ id, counts }: { id: string; counts: Counts }): ReactElement {
  counts.add(`chat ${id}`);
  const chat = hooks.useChat(id);
  return <i>{`${chat.name ?? chat.id} ${chat.unread}`}</i>;
}

function Composer({ id, counts }: { id: string; counts: Counts }): ReactElement {
  counts.add(`composer ${id}`);
  return <b id="draft">{hooks.useDraft(id)[0]}</b>;
}

function List({ counts }: { counts: Counts }): ReactElement {
  counts.add("list");
  return (
    <>
      {hooks.useChats().map((chat) => (
        <Row key={chat.id} chat={chat} counts={counts} />
      ))}
    </>
  );
}

const Row = memo(function Row({ chat, counts }: { chat: Chat; counts: Counts }): ReactElement {
  counts.add(`row ${chat.id}`);
  const hasDraft = hooks.useHasDraft(chat.id);
  return <u>{`${chat.id}:${chat.lastMessage?.body ?? ""}${hasDraft ? "*" : ""};`}</u>;
});

function All({ counts }: { counts: Counts }): ReactElement {
  const sections = [A, B].map((id) => (
    <section key={id}>
      <Texts id={id} counts={counts} />
      <Name id={id} counts={counts} />
      <Composer id={id} counts={counts} />
    </section>
  ));
  return (
    <>
      <List counts={counts} />
      {sections}
    </>
  );
}

test("a message renders only the components of its chat", async () => {
  const [client, counts] = [connected(), new Counts()];
  const tree = await render(client, <All counts={counts} />);
  counts.popAll();

  await tree.run(() => client.entry(A, 2, { body: "news" }));

  assert.equal(tree.find(`#${A}`).textContent, "text 1|news");
  const rendered = { list: 1, [`row ${A}`]: 1, [`messages ${A}`]: 1, [`chat ${A}`]: 1 };
  assert.deepEqual(counts.popAll(), rendered);
  await tree.unmount();
});

test("a keystroke renders only the composer; the first one also renders the row", async () => {
  const [client, counts] = [connected(), new Counts()];
  const tree = await render(client, <All counts={counts} />);
  counts.popAll();

  await tree.run(() => void (client.chat(A).draft = "h"));
  assert.deepEqual(counts.popAll(), { [`row ${A}`]: 1, [`composer ${A}`]: 1 });
  await tree.run(() => void (client.chat(A).draft = "he"));

  assert.deepEqual(counts.popAll(), { [`composer ${A}`]: 1 });
  assert.equal(tree.find("#draft").textContent, "he");
  await tree.unmount();
});

test("signals and connection changes render only the components that use them", async () => {
  const [client, counts] = [connected(), new Counts()];
  function Typing({ id }: { id: string }): ReactElement {
    counts.add(`typing ${id}`);
    return <s id={`t-${id}`}>{hooks.useTyping(id).join()}</s>;
  }
  function Online(): ReactElement {
    counts.add("online");
    const { isOnline, user } = hooks.useConnection();
    return <em>{`${user} ${isOnline}`}</em>;
  }
  const tree = await render(
    client,
    <>
      <All counts={counts} />
      <Typing id={A} />
      <Typing id={B} />
      <Online />
    </>,
  );
  const typing = (on: boolean): void => {
    client.receive({ type: "signal", kind: "typing", from: "bob", chat: A, on });
  };
  counts.popAll();

  await tree.run(() => typing(true));
  assert.equal(tree.find(`#t-${A}`).textContent, "bob");
  await tree.run(() => typing(true));
  assert.deepEqual(counts.popAll(), { [`typing ${A}`]: 1 });
  await tree.run(() => typing(false));
  assert.deepEqual(counts.popAll(), { [`typing ${A}`]: 1 });
  await tree.run(() => typing(true));
  await tree.run(() => client.entry(A, 2));
  assert.equal(tree.find(`#t-${A}`).textContent, "");
  counts.popAll();
  await tree.run(() => client.disconnect());
  assert.deepEqual(counts.popAll(), { online: 1 });
  assert.equal(tree.find("em").textContent, "alice false");
  await tree.unmount();
});

test("typing indicators expire without a stop signal", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const client = connected();
  function Typing(): ReactElement {
    return <s>{hooks.useTyping(A).join()}</s>;
  }
  const tree = await render(client, <Typing />);
  const signal = { type: "signal", kind: "typing", from: "bob", chat: A, on: true };
  await tree.run(() => client.receive(signal));
  assert.equal(tree.text(), "bob");

  await tree.run(() => context.mock.timers.tick(6_000));

  assert.equal(tree.text(), "");
  await tree.unmount();
});

test("the chat list is sorted by activity, without chats that the user left", async () => {
  const [client, counts] = [connected(), new Counts()];
  client.entry(A, 2, { ts: 9_000_000, body: "old" });
  const tree = await render(client, <List counts={counts} />);
  assert.equal(tree.text(), "g-a:old;g-b:text 1;");

  await tree.run(() => client.entry(B, 2, { ts: 9_000_001, body: "new" }));
  assert.equal(tree.text(), "g-b:new;g-a:old;");
  const info = { chat: "g-c", kind: "group", members: ["alice", "bob"] };
  await tree.run(() => {
    client.receive({ type: "event", epoch: "e1", seq: 5, kind: "chat", chat: "g-c", info });
  });
  assert.equal(tree.text(), "g-c:;g-b:new;g-a:old;");
  await tree.run(() => {
    client.receive({
      ...{ type: "event", epoch: "e1", seq: 6, kind: "member", chat: B },
      message: buildEntry(B, 3, { kind: "member", user: "alice", role: "", body: "" }),
    });
  });

  assert.equal(tree.text(), "g-c:;g-a:old;");
  await tree.unmount();
});

test("the chat list loads its pages", async () => {
  const client = new StateClient();
  client.respond = async ({ type }) => {
    const [id, next] = client.requests.length === 1 ? [A, "more"] : [B, null];
    const summary = { chat: id, kind: "group", top: 1, unread: 1, last: buildEntry(id, 1) };
    return { type, chats: [summary], more: next !== null, next };
  };
  let view: hooks.ChatListView | undefined;
  function List(): ReactElement {
    view = hooks.useChatList();
    return <p>{`${view.chats.map(({ id }) => id).join()} ${view.hasMore} ${hooks.useUnread()}`}</p>;
  }
  const tree = await render(client, <List />);
  assert.equal(tree.text(), " true 0");

  await tree.run(() => client.connect());
  assert.equal(tree.text(), "g-a true 1");
  await tree.run(() => void view?.loadMore());

  assert.equal(tree.text(), "g-a,g-b false 2");
  await tree.unmount();
});

test("components of one commit show the same state", async () => {
  const client = connected();
  let [commits, mismatches]: [number, string[]] = [0, []];
  function Part({ id }: { id: string }): ReactElement {
    const { messages } = hooks.useMessages(id);
    const { top } = hooks.useChat(id);
    const text = `${messages.at(-1)?.seq} ${top}`;
    useLayoutEffect(() => {
      const shown = [...document.querySelectorAll("p")].map((element) => element.textContent);
      if (new Set(shown).size > 1) mismatches.push(shown.join());
      commits += 1;
    });
    return <p>{text}</p>;
  }
  let setCount: (count: number) => void = () => {};
  function Parts(): ReactElement {
    const [count, set] = useState(2);
    setCount = set;
    return (
      <>
        {Array.from({ length: count }, (_, index) => (
          <Part key={index} id={A} />
        ))}
      </>
    );
  }
  const tree = await render(client, <Parts />);

  for (let seq = 2; seq < 20; seq += 1) {
    await tree.run(() => {
      startTransition(() => setCount(seq)); // renders in the background, while messages arrive
      client.entry(A, seq);
    });
  }

  assert.ok(commits > 100);
  assert.deepEqual(mismatches, []);
  assert.equal(tree.text(), "19 19".repeat(19));
  await tree.unmount();
});

test("removed components end their subscriptions", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const [client, counts] = [connected(), new Counts()];
  const store = ClientStore.get(client.asClient);
  function Presence(): ReactElement {
    const presence = hooks.usePresence(["bob", "carol"]);
    return <p>{[...presence].map(([user, { state }]) => `${user} ${state}`).join()}</p>;
  }
  const tree = await render(
    client,
    <>
      <All counts={counts} />
      <Presence />
    </>,
  );
  const sent = (): string[] => client.notified.map(({ type, users }) => `${type} ${users}`);
  const wait = (): Promise<void> => tree.run(() => context.mock.timers.tick(100));
  await wait();
  assert.deepEqual(sent().at(-1), "watch bob,carol");
  await tree.run(() => client.entry(A, 2)); // the server may have skipped bob until now
  await wait();
  assert.deepEqual(sent().at(-1), "watch bob");
  const signal = { type: "signal", kind: "presence", from: "bob", state: "online" };
  await tree.run(() => client.receive(signal));
  const count = sent().length;
  await tree.run(() => client.entry(A, 3));
  assert.equal(sent().length, count);
  assert.match(tree.text(), /bob online$/);
  assert.ok(store.topics.count() > 5);

  await tree.unmount();
  context.mock.timers.tick(100);

  assert.equal(sent().at(-1), "unwatch carol,bob");
  assert.equal(store.topics.count(), 0);
  assert.deepEqual([client.listeners.size, client.changeListeners.size], [0, 0]);
  counts.popAll();
  client.entry(A, 4);
  assert.deepEqual(counts.popAll(), {});
});

test("a list of 500 users subscribes in few frames and shows presence", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const client = connected();
  function User({ user }: { user: string }): ReactElement | null {
    return hooks.usePresence([user]).get(user)?.isOnline === true ? <p>{user}</p> : null;
  }
  const users = Array.from({ length: 501 }, (_, number) => `u${number}`);
  const Users = (): ReactNode => users.map((user) => <User key={user} user={user} />);
  const tree = await render(client, <Users />);
  await tree.run(() => context.mock.timers.tick(100));

  const sent = client.notified.map((frame) => frame["users"] as string[]);
  assert.deepEqual(sent.flat(), users.slice(0, 500)); // at most 500 subscriptions
  assert.deepEqual(
    sent.map((users) => users.length),
    [100, 100, 100, 100, 100],
  );
  const signal = { type: "signal", kind: "presence", from: "u499", state: "online" };
  await tree.run(() => client.receive(signal));
  assert.equal(tree.text(), "u499");
  await tree.unmount();
});

test("strict mode subscribes once, and loads once", async () => {
  const client = connected();
  client.entry(A, 3); // 2 is missing
  const store = ClientStore.get(client.asClient);
  client.respond = async ({ chat, type }) => {
    return { type, chat, messages: [], tier: "hot", more: false };
  };

  const tree = await render(client, <Texts id={A} />, { isStrict: true });

  assert.equal(store.topics.count(), 1);
  assert.deepEqual([client.listeners.size, client.changeListeners.size], [1, 1]);
  await tree.run(() => client.entry(A, 2));
  assert.equal(tree.text(), "text 1|text 2|text 3");
  await tree.unmount();
  assert.equal(client.listeners.size, 0);
});

test("a listener gets the events of its type", async () => {
  const client = connected();
  const received: string[] = [];
  function EventListener({ prefix }: { prefix: string }): null {
    hooks.useEvent("messageAdded", ({ message }) => void received.push(prefix + message.body));
    return null;
  }
  let setPrefix: (prefix: string) => void = () => {};
  function Listeners(): ReactElement {
    const [prefix, set] = useState("a ");
    setPrefix = set;
    return <EventListener prefix={prefix} />;
  }
  const tree = await render(client, <Listeners />);

  await tree.run(() => client.entry(A, 2));
  await tree.run(() => setPrefix("b "));
  await tree.run(() => client.entry(A, 3));
  await tree.unmount();
  client.entry(A, 4);

  assert.deepEqual(received, ["a text 2", "b text 3"]);
});

test("a companion's response grows until its message arrives", async () => {
  const client = connected();
  let response: hooks.CompanionResponse | null = null;
  function Response(): ReactElement {
    response = hooks.useCompanionResponse(A);
    return <p>{response === null ? "none" : `${response.text} ${response.isRunning}`}</p>;
  }
  const tree = await render(client, <Response />);
  const piece = (index: number, text: string, end = "", turn = "t1"): void => {
    const fields = { type: "signal", kind: "ai.delta", chat: A, from: "ai-ada" };
    client.receive({ ...fields, turn, seq: 1, index, text, end });
  };
  assert.equal(tree.text(), "none");

  await tree.run(() => piece(0, "Hel"));
  await tree.run(() => piece(1, "lo"));
  assert.equal(tree.text(), "Hello true");
  await tree.run(() => client.entry(A, 2, { body: "a question meanwhile" }));
  assert.equal(tree.text(), "Hello true");
  await tree.run(() => client.entry(A, 3, { reply_to: 1, ai: { model: "m" }, body: "Hello" }));
  assert.equal(tree.text(), "none");
  await tree.run(() => piece(2, "", "done"));

  assert.equal(tree.text(), "none");
  await tree.unmount();
});

test("members are sorted by role", async () => {
  const client = connected();
  const roles = { carol: "owner", bob: "admin" };
  const members = ["alice", "bob", "carol", "dan"];
  const info = { chat: A, kind: "group", members, roles, muted: { dan: 0 } };
  client.receive({ type: "event", epoch: "e1", seq: 3, kind: "chat", chat: A, info });
  function Members(): ReactElement {
    const names = hooks.useMembers(A).map(({ user, isMuted }) => (isMuted ? `(${user})` : user));
    return <p>{names.join()}</p>;
  }

  const tree = await render(client, <Members />);

  assert.equal(tree.text(), "carol,bob,alice,(dan)");
  await tree.unmount();
});

test("roles missing from the chat list are loaded once, and again after a failure", async () => {
  const client = connected();
  const calls: string[] = [];
  let answer = async (): Promise<unknown> => Promise.reject(new Error("no network"));
  const call = (name: string): Promise<unknown> => {
    calls.push(name);
    return answer();
  };
  client.http = { call } as never;
  const listed = { chat: "g-l", kind: "group", members: ["bob", "cy"] };
  client.respond = async () => ({ type: "page", chats: [listed] });
  await client.request({ type: "chats" });
  const Members = (): ReactElement => (
    <p>
      {hooks
        .useMembers("g-l")
        .map(({ user, role }) => `${user} ${role}`)
        .join()}
    </p>
  );

  const tree = await render(
    client,
    <>
      <Members />
      <Members />
    </>,
  );
  await tree.run(() => client.deliver([{ type: "connected" }] as never, new Set()));
  assert.deepEqual(calls, ["get_chat", "get_chat"]);
  assert.equal(tree.text(), "bob member,cy memberbob member,cy member");
  answer = async () => ({ ...listed, count: 2, roles: { cy: "owner" } });
  for (const times of [1, 2]) {
    await tree.run(() => client.deliver([{ type: "connected" }] as never, new Set()));
    assert.equal(tree.text(), "cy owner,bob membercy owner,bob member", String(times));
  }

  assert.equal(calls.length, 3);
  await tree.run(() => client.request({ type: "chats" }));
  assert.equal(tree.text(), "cy owner,bob membercy owner,bob member");
  await tree.unmount();
});

test("preferences of another device apply, and an older revision does not", async () => {
  const client = connected();
  client.entry(A, 2);
  function Preferences(): ReactElement {
    const { isArchived, clearedUpto } = hooks.usePreferences(A);
    return <p>{`${isArchived} ${clearedUpto} ${hooks.usePinnedChats().join()} `}</p>;
  }
  const tree = await render(
    client,
    <>
      <Preferences />
      <Texts id={A} />
    </>,
  );
  const signal = (kind: string, fields: object): Promise<void> => {
    return tree.run(() => client.receive({ type: "signal", kind, from: "alice", ...fields }));
  };
  const archived = (rev: number, isArchived: boolean): Promise<void> => {
    const preferences = { chat: A, rev, archived: isArchived, cleared_upto: rev - 4 };
    return signal("chat_preferences", { preferences });
  };
  assert.equal(tree.text(), "false 0  text 1|text 2");

  await archived(5, true);
  await archived(4, false);
  await signal("pinned_chats", { pinned: { chats: [B, A], rev: 2 } });
  await signal("pinned_chats", { pinned: { chats: [], rev: 1 } });

  assert.equal(tree.text(), "true 1 g-b,g-a text 2");
  await tree.unmount();
});

test("a hook without a provider throws an error that names the provider", async () => {
  const { renderToString } = await import("react-dom/server");

  assert.throws(() => renderToString(<Texts id={A} />), /needs a ChatProvider/);
});
