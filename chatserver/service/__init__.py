"""Core use cases, shared by the gateway, the API and the workers.

Start with `messaging/message_sender.py`, the path of a message from `send` to the devices.
"""
