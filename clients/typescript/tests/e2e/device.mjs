// One device. It reads commands from standard input and writes results to standard output, as JSON
// lines.
//
//   node device.mjs URL TOKEN DEVICE [STORE]

import { createInterface } from "node:readline";

import { ChatClient } from "tierchat";
import { FileStore } from "tierchat/node";
import WebSocket from "ws";

const [url, token, device, path] = process.argv.slice(2);
const client = new ChatClient({
  url,
  getToken: () => token,
  device,
  WebSocket,
  isOfflineFirst: true,
  ...(path === undefined ? {} : { store: new FileStore(path) }),
});
const received = [];
const acked = [];

async function listen() {
  for await (const event of client.events()) {
    if (event.type === "messageAdded") received.push([event.message.seq, event.message.body]);
    if (event.type === "acked") acked.push(event.ref);
  }
}

const commands = {
  open: async (user) => (await client.openDirect(user)).id,
  send: (chat, text) => client.chat(chat).send({ body: text }).ref,
  sendAndWait: async (chat, text) => (await client.chat(chat).send({ body: text })).seq,
  react: async (chat, seq, emoji) => (await client.chat(chat).react(seq, emoji)).seq,
  edit: async (chat, seq, text) => (await client.chat(chat).edit(seq, text)).seq,
  read: (chat, seq) => client.chat(chat).markRead(seq),
  state: (chat) => ({
    isOnline: client.isOnline,
    received,
    acked,
    messages: client.chat(chat).messages,
    pending: client.chat(chat).pending.map(({ fields, stage }) => [fields.body, stage]),
    unread: client.chat(chat).unread,
    marks: client.chat(chat).marks,
  }),
  history: async (chat) => (await client.chat(chat).history()).messages.map(({ body }) => body),
  close: () => client.close(),
};

await client.connect();
void listen();
console.log(JSON.stringify({ user: client.user }));
for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...args] = JSON.parse(line);
  try {
    console.log(JSON.stringify({ result: (await commands[name](...args)) ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ error: error.code ?? String(error) }));
  }
  if (name === "close") break;
}
process.stdin.destroy();
