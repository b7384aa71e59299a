"""WebSocket gateway.

- `transport`: sockets, frames and admission control
- `session`: authenticated sessions and their commands
- `delivery`: event delivery to sessions
- `process`: the server, draining and supervision

Start with `chatserver.gateway.process.server`.
"""
