"""The WebSocket process: connections, sessions, and the pushes between them."""
