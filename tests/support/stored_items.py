"""Items in DynamoDB, read without the product's code."""

from __future__ import annotations

from typing import Any

import boto3  # type: ignore[import-untyped]  # no type information
from botocore.config import Config

from chatserver.dev.servers import ACCESS_KEY, REGION, SECRET_KEY


def dynamodb_client(endpoint: str) -> Any:
    """Return a database client without the product's code."""
    return boto3.client(
        "dynamodb",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=Config(retries={"max_attempts": 2}, connect_timeout=20, read_timeout=20),
    )


def read_partitions(endpoint: str, table: str, key: str, *values: str) -> list[dict[str, Any]]:
    """Return all items of the partitions with these key values, without the product's code."""
    queries = dynamodb_client(endpoint).get_paginator("query")
    return [
        item
        for value in values
        for page in queries.paginate(
            TableName=table,
            ConsistentRead=True,
            KeyConditionExpression="#key = :value",
            ExpressionAttributeNames={"#key": key},
            ExpressionAttributeValues={":value": {"S": value}},
        )
        for item in page["Items"]
    ]
