"""Per-user data in Redis: inboxes, presence, sessions, limits, revocations and blocks.

Start with `inbox` (events for all of a user's devices) and `user_gateways` (online users by
gateway).
"""
