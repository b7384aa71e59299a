"""Delivery of events and signals to sessions, on this gateway and on others.

Start with `event_dispatcher`; `large_chat_delivery` is the separate path for large chats.
"""
