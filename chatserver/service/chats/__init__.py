"""Chats: loading into Redis, creation, listing, read marks and typing signals.

`service.py` has the use cases; `chat_loader.py` loads chats and users from the warm tier.
"""
