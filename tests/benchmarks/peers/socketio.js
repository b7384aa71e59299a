// A chat as the documentation of Socket.IO builds one: a room per user, acknowledgements, and the
// Redis adapter. With LOG=1, each message is first appended to a Redis stream of its recipient or
// room, and a client that reconnects with an offset gets what it missed.
const { createServer } = require("node:http");
const { createAdapter } = require("@socket.io/redis-adapter");
const { createClient } = require("redis");
const { Server } = require("socket.io");

const { LOG, PORT, REDIS } = process.env;
const TRIM = { strategy: "MAXLEN", strategyModifier: "~", threshold: 10_000 };

async function main() {
  const redis = createClient({ url: REDIS });
  const subscriber = redis.duplicate();
  await Promise.all([redis.connect(), subscriber.connect()]);
  const http = createServer();
  const io = new Server(http, {
    adapter: createAdapter(redis, subscriber),
    transports: ["websocket"],
    pingInterval: 600_000, // the load generator does not answer pings
  });
  io.on("connection", async (socket) => {
    const { rooms, offset } = socket.handshake.auth;
    socket.join(rooms);
    socket.on("message", async (to, text, acknowledge) => {
      const id = LOG && (await redis.xAdd(`log:${to}`, "*", { text }, { TRIM }));
      io.to(to).emit("message", text, id);
      acknowledge();
    });
    for (const room of offset ? rooms : []) {
      for (const { id, message } of await redis.xRange(`log:${room}`, `(${offset}`, "+")) {
        socket.emit("message", message.text, id);
      }
    }
  });
  http.listen(Number(PORT), "127.0.0.1", 1024);
}

main();
