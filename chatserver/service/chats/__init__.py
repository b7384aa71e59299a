"""Chats: loading into Redis, creation, listing, read marks and typing signals.

`user_chats.py` opens, creates and lists chats; `read_marks.py` and `typing_signals.py` notify the
other members. `chat_loader.py` and `user_loader.py` load from the warm tier.
"""
