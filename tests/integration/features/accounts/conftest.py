"""These tests run behind the limits of AWS."""

from tests.support.servers.limits import dynamodb

__all__ = ["dynamodb"]
