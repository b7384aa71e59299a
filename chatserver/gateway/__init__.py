"""WebSocket gateway.

`transport` holds sockets, frames and admission control, `session` the authenticated session and
its commands, `delivery` the pushes to sessions, `process` the server, draining and supervision.
Start with `chatserver.gateway.process.server`.
"""
