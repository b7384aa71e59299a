"""Messaging: send, edit, delete, react, broadcast, and erase messages.

Start with `message_sender.py`, the path from a client's `send` to ack and delivery.
"""
