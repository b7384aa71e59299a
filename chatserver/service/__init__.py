"""Core use cases, shared by the gateway, the API and the workers.

Start with `messaging/service.py`, the path of a message from `send` to the devices.
"""
