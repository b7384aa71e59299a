// The smallest chat on `ws`: rooms in memory, one per user and one for each group.
const { WebSocketServer } = require("ws");

const rooms = new Map();
const server = new WebSocketServer({
  port: Number(process.env.PORT),
  host: "127.0.0.1",
  backlog: 1024,
});

server.on("connection", (socket, request) => {
  const names = new URL(request.url, "http://localhost").searchParams.getAll("room");
  for (const name of names) {
    if (!rooms.has(name)) rooms.set(name, new Set());
    rooms.get(name).add(socket);
  }
  socket.on("message", (data) => {
    const { id, to, text } = JSON.parse(data);
    const message = JSON.stringify({ from: names[0], to, text });
    for (const member of rooms.get(to) ?? []) member.send(message);
    socket.send(`{"ack":${id}}`);
  });
  socket.on("close", () => {
    for (const name of names) rooms.get(name).delete(socket);
  });
});
