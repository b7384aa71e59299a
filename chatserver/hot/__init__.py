"""The hot tier: Redis. Every message is committed here before it is acknowledged.

`redis` has the connections, key names and script loading; `chats`, `users` and `bus` read and write
the data. Start with `redis.keys` and `chats.group_commit`. The Lua scripts are in `scripts`.
"""
