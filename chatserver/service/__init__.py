"""Core use cases, shared by the gateway, the API and the workers.

Modules depend on adapters through the protocols they declare. Start with `messaging/service.py`.
"""
