"""Delivery of events and signals (typing, presence) to sessions on this and other gateways.

Start with `event_dispatcher`. Large chats have their own delivery path, `large_chat_delivery`.
"""
