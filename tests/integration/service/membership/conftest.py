"""Runs these tests with the throughput limits of AWS."""

from tests.support.servers.limits import dynamodb

__all__ = ["dynamodb"]
