"""A real-time chat server: WebSocket gateway, Redis hot tier, DynamoDB history."""

__version__ = "0.1.0"
