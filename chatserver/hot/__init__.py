"""The hot tier: Redis. A message is committed here before it is acknowledged.

`redis` has the connection, keys and scripts; `chats`, `users` and `bus` have the data. Start with
`redis.keys` and `chats.group_commit`. The Lua scripts are in ``scripts``.
"""
