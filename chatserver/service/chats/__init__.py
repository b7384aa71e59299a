"""Chats: loading into Redis, creation, listing, read marks and typing signals.

`service.py` has the use cases; `chat_loader.py` and `user_loader.py` load from the warm tier.
"""
