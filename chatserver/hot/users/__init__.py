"""Per-user data in Redis: inboxes, presence, sessions, limits, revocations and blocks.

Start with `inbox` (events for every device of a user) and `presence` (online users by gateway).
"""
