"""A raw DynamoDB client for tests of the proxy, without retries."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import Any

import aioboto3
from aiobotocore.config import AioConfig
from botocore.exceptions import ClientError

from chatserver.dev.aws_limits.proxy import LimitsProxy
from chatserver.dev.aws_limits.rules import AwsLimits
from chatserver.dev.servers import ACCESS_KEY, REGION, SECRET_KEY

# No faults and no index lag, unless a test sets them.
OFF: dict[str, Any] = {"index_lag_ms": (0.0, 0.0), "unprocessed_share": 0.0}


@contextlib.asynccontextmanager
async def open_client(endpoint: str) -> AsyncIterator[Any]:
    """Open an SDK client that tries each call once."""
    session = aioboto3.Session(
        aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY, region_name=REGION
    )
    config = AioConfig(retries={"total_max_attempts": 1}, max_pool_connections=64, read_timeout=60)
    async with session.client("dynamodb", endpoint_url=endpoint, config=config) as client:
        yield client


class Table:
    """A table with an index, behind the proxy."""

    def __init__(self, name: str, client: Any, proxy: LimitsProxy) -> None:
        self.name = name
        self.client = client
        self.proxy = proxy

    def put(self, partition: str, sort: str = "1", **values: str) -> dict[str, Any]:
        return {"TableName": self.name, "Item": make_item(partition, sort, **values)}

    async def scan(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return all items by key; the table must fit in one page."""
        answer = await self.client.scan(TableName=self.name, ConsistentRead=True)
        assert "LastEvaluatedKey" not in answer
        return {(item["PK"]["S"], item["SK"]["S"]): item for item in answer["Items"]}

    async def query_index(self, owner: str, **more: Any) -> list[dict[str, Any]]:
        """Return the entries of an owner from the index."""
        answer = await self.client.query(
            TableName=self.name,
            IndexName="by_owner",
            KeyConditionExpression="#o = :o",
            ExpressionAttributeNames={"#o": "owner"},
            ExpressionAttributeValues={":o": {"S": owner}},
            **more,
        )
        items: list[dict[str, Any]] = answer["Items"]
        return items


def make_key(partition: str, sort: str = "1") -> dict[str, Any]:
    return {"PK": {"S": partition}, "SK": {"S": sort}}


def make_item(partition: str, sort: str = "1", **values: str) -> dict[str, Any]:
    return {**make_key(partition, sort), **{name: {"S": text} for name, text in values.items()}}


@contextlib.asynccontextmanager
async def open_table(endpoint: str, **limits: Any) -> AsyncIterator[Table]:
    """Create a table for one test, behind a proxy with these limits."""
    port = int(endpoint.rpartition(":")[2])
    name = f"limits-{secrets.token_hex(6)}"
    async with (
        LimitsProxy(port, AwsLimits(**{**OFF, **limits})) as proxy,
        open_client(proxy.endpoint) as client,
    ):
        await client.create_table(
            TableName=name,
            KeySchema=[
                {"AttributeName": "PK", "KeyType": "HASH"},
                {"AttributeName": "SK", "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": each, "AttributeType": "S"} for each in ("PK", "SK", "owner")
            ],
            GlobalSecondaryIndexes=[
                {
                    "IndexName": "by_owner",
                    "KeySchema": [{"AttributeName": "owner", "KeyType": "HASH"}],
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                }
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        yield Table(name, client, proxy)


async def outcome_of(call: Any) -> str:
    """Return the error code of a call, or an empty string."""
    try:
        await call
    except ClientError as exc:
        return str(exc.response["Error"]["Code"])
    return ""
