"""All data stored by a stack, read without the product's code, to search for leaked secrets."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.servers.processes import redis_client
from tests.support.stack import Stack
from tests.support.stored_items import dynamodb_client


def iter_logs(stack: Stack) -> Iterator[tuple[str, bytes]]:
    """Iterate over the logs of all processes."""
    for path in stack.folder.glob("*.log"):
        yield path.name, path.read_bytes()


def iter_redis(stack: Stack) -> Iterator[tuple[str, bytes]]:
    """Iterate over all data in Redis."""
    with redis_client(stack.redis_url) as client:
        for key in client.scan_iter():
            match client.type(key):
                case b"string":
                    value: object = client.get(key)
                case b"hash":
                    value = client.hgetall(key)
                case b"stream":
                    value = client.xrange(key)
                case b"zset":
                    value = client.zrange(key, 0, -1)
                case _:
                    value = client.smembers(key)
            yield key.decode(), key + repr(value).encode()


def iter_tables(stack: Stack) -> Iterator[tuple[str, bytes]]:
    """Iterate over all data in DynamoDB."""
    client = dynamodb_client(stack.dynamodb.endpoint)
    for table in client.list_tables()["TableNames"]:
        for page in client.get_paginator("scan").paginate(TableName=table):
            yield table, repr(page["Items"]).encode()
