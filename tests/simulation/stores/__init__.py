"""Invariants of the data in Redis, DynamoDB and S3 when the system is idle."""
