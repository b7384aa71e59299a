// A bot that replies to every direct message: node bot.mjs API_URL USER PASSWORD
import { Account, ChatClient } from "tierchat";
import { FileStore } from "tierchat/node";
import WebSocket from "ws"; // built in since Node 22

const [apiUrl, user, password] = process.argv.slice(2);
const account = await Account.logInOrRegister({ apiUrl, device: "bot" }, user, password);
const config = await (await fetch(`${apiUrl}/v1/client-config`)).json();
const client = new ChatClient({
  url: config.gateway_url,
  getToken: account.getToken,
  store: new FileStore(`${user}.json`), // resumes after a restart
  WebSocket,
});
await client.connect();
console.log("ready");
for await (const event of client.events()) {
  if (event.type !== "messageAdded" || event.message.sender === client.user) continue;
  const { body, seq } = event.message;
  client.chat(event.chat).send({ body: `You said: ${body}`, replyTo: seq });
}
