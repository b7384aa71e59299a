"""WebSocket transport: listener, connections, framing, heartbeats and admission control.

Start with `connection`.
"""
