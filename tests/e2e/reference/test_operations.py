"""Tools for operators: the self-test, and a DynamoDB that refuses requests as AWS does."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]  # no type information
from botocore.config import Config  # type: ignore[import-untyped]  # no type information
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tests.e2e.reference.support import AWS, HOST, Server, wait_for
from tests.support.servers.ports import free_port

WRITE_UNITS = 10


@contextlib.contextmanager
def open_limits(server: Server) -> Iterator[Any]:
    """Start a proxy with AWS limits in front of DynamoDB; yield a client without retries.

    `chatserver dev --aws-limits` starts the same proxy with the limits of AWS.
    """
    port = free_port()
    argv = [sys.executable, "-m", "chatserver.dev.aws_limits", "--port", str(port)]
    argv += ["--target", str(server.addresses.dynamodb), "--unprocessed-share", "0.5"]
    argv += ["--write-units", str(WRITE_UNITS), "--index-lag-ms", "0", "0"]
    process = subprocess.Popen(argv)
    try:
        wait_for(lambda: _is_open(port), "the proxy listens")
        yield boto3.client(
            "dynamodb",
            endpoint_url=f"http://{HOST}:{port}",
            config=Config(retries={"total_max_attempts": 1}, max_pool_connections=16),
            **AWS,
        )
    finally:
        process.terminate()
        process.wait(60)


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@contextlib.contextmanager
def open_table(server: Server) -> Iterator[str]:
    name = f"limits-{secrets.token_hex(4)}"
    server.raw_dynamodb.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "PK", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    try:
        yield name
    finally:
        server.raw_dynamodb.delete_table(TableName=name)


def error_of(call: Any, **request: Any) -> str:
    """Send a request; return its error code and message, empty if it succeeds."""
    try:
        call(**request)
    except ClientError as exc:
        return f"{exc.response['Error']['Code']}: {exc.response['Error']['Message']}"
    return ""


def test_dynamodb_refuses_as_aws_does(server: Server) -> None:
    """Conflicting transactions, a hot partition and partial batches get the errors of AWS."""
    with open_table(server) as table, open_limits(server) as client:
        put = {"Put": {"TableName": table, "Item": {"PK": {"S": "contended"}}}}

        def transact(_: int) -> str:
            return error_of(client.transact_write_items, TransactItems=[put])

        with ThreadPoolExecutor(8) as pool:
            cancelled = "\n".join(pool.map(transact, range(8)))
        hot = [
            error_of(client.put_item, TableName=table, Item={"PK": {"S": "hot"}})
            for _ in range(20 * WRITE_UNITS)
        ]
        cold = error_of(client.put_item, TableName=table, Item={"PK": {"S": "cold"}})
        puts = [{"PutRequest": {"Item": {"PK": {"S": f"batch-{n}"}}}} for n in range(25)]
        answer = client.batch_write_item(RequestItems={table: puts})
        left = answer["UnprocessedItems"].get(table, [])

        assert "TransactionCanceledException" in cancelled
        assert "TransactionConflict" in cancelled
        assert any("ProvisionedThroughputExceededException" in each for each in hot)
        assert hot[0] == cold == ""
        assert 0 < len(left) < 25
        stored = {item["PK"]["S"] for item in server.raw_dynamodb.scan(TableName=table)["Items"]}
        missing = {each["PutRequest"]["Item"]["PK"]["S"] for each in left}
        assert stored == {"contended", "hot", "cold", *(f"batch-{n}" for n in range(25))} - missing


def test_selftest_checks_all_stores_and_leaves_nothing(server: Server, tmp_path: Path) -> None:
    """The self-test before the first user writes a report and leaves no table, object or key."""
    tables = server.raw_dynamodb.list_tables()["TableNames"]
    output = server.command("selftest", "--out", str(tmp_path), CHAT_REDIS_URL=server.redis_url(9))

    report = json.loads((tmp_path / "selftest.json").read_text())
    assert report["passed"] and report["left"] == [], output
    assert {each["store"] for each in report["results"]} == {"s3", "dynamodb", "redis", "chat"}
    assert {each["status"] for each in report["results"]} <= {"passed", "skipped"}
    assert (tmp_path / "selftest.md").read_text().startswith("# Self-test: passed")
    assert server.raw_dynamodb.list_tables()["TableNames"] == tables
    assert server.objects("selftest-") == []
