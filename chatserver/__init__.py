"""Real-time chat server: WebSocket gateway, Redis hot tier, DynamoDB history and S3 archive."""

from chatserver import compiled

__version__ = "0.1.0"

compiled.install()
