"""These tests use a DynamoDB that enforces the limits of AWS."""

from tests.support.servers.limits import dynamodb

__all__ = ["dynamodb"]
