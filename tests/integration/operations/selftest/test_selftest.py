"""`chatserver selftest` against local servers: results, reports and cleanup."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aioboto3
import pytest

from chatserver.config import Cold, Settings
from chatserver.dev.servers import ACCESS_KEY, REGION, SECRET_KEY
from chatserver.operations.selftest.cli import run_selftest
from chatserver.operations.selftest.resources import Names
from tests.integration.warm.support import settings_for
from tests.integration.workers.support import patient_redis
from tests.support.deadlines import EXIT_S, wait_for_exit
from tests.support.servers.dynamodb_proxy import DynamoProxy, Refuse
from tests.support.servers.processes import redis_client

BUCKET = "chatserver-selftest"


@pytest.fixture
async def aws(dynamodb: str, s3: str) -> AsyncIterator[tuple[Any, Any]]:
    """SDK clients of the local servers, with the bucket."""
    keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
    session = aioboto3.Session(region_name=REGION, **keys)
    async with (
        session.client("dynamodb", endpoint_url=dynamodb) as tables,
        session.client("s3", endpoint_url=s3) as objects,
    ):
        await objects.create_bucket(Bucket=BUCKET)
        yield tables, objects


@pytest.fixture
def variables(dynamodb: str, s3: str, redis_url: str) -> dict[str, str]:
    return {
        "CHAT_REDIS_URL": redis_url,
        "CHAT_REDIS_CALL_TIMEOUT_S": "20",
        "CHAT_WARM_ENDPOINT": dynamodb,
        "CHAT_WARM_REGION": REGION,
        "CHAT_WARM_STREAM": "true",
        "CHAT_WARM_CALL_TIMEOUT_S": "20",
        "CHAT_COLD_ENDPOINT": s3,
        "CHAT_COLD_REGION": REGION,
        "CHAT_COLD_BUCKET": BUCKET,
        **{
            f"CHAT_{tier}_{name}": value
            for tier in ("WARM", "COLD")
            for name, value in (("ACCESS_KEY", ACCESS_KEY), ("SECRET_KEY", SECRET_KEY))
        },
        "CHAT_AUTH_SECRET": "0123456789abcdef" * 4,
    }


async def start(variables: dict[str, str], *options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "chatserver.cli.main", "selftest", *options,
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip


async def list_left(aws: tuple[Any, Any], redis_url: str) -> list[str]:
    """Return the tables, objects and keys that self-tests left.

    The epochs that any connection creates do not count.
    """
    tables, objects = aws
    names: list[str] = []
    async for page in tables.get_paginator("list_tables").paginate():
        names += page["TableNames"]
    names += [
        each["Key"] for each in (await objects.list_objects_v2(Bucket=BUCKET)).get("Contents", [])
    ]
    with redis_client(redis_url) as client:
        names += [key.decode() for key in client.scan_iter()]
    epochs = ("{p0}:epoch", "{p0}:where")
    return [
        name
        for name in names
        if "selftest" in name or (name.startswith("{p") and name not in epochs)
    ]


async def test_all_checks_pass_and_nothing_is_left(
    variables: dict[str, str], aws: tuple[Any, Any], tmp_path: Path
) -> None:
    """Every store and guarantee is checked, and both reports agree."""
    process = await start(variables, "--out", str(tmp_path))
    output, _ = await asyncio.wait_for(process.communicate(), EXIT_S)

    report = json.loads((tmp_path / "selftest.json").read_text())
    assert process.returncode == 0, output.decode()
    assert report["passed"] and report["left"] == []
    assert {each["store"] for each in report["results"]} == {"s3", "dynamodb", "redis", "chat"}
    assert {each["status"] for each in report["results"]} == {"passed"}
    page = (tmp_path / "selftest.md").read_text()
    assert page.startswith("# Self-test: passed")
    assert "10 from cold, 10 from hot, 10 from warm" in page
    assert await list_left(aws, variables["CHAT_REDIS_URL"]) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_interrupted_run_deletes_what_it_created(
    variables: dict[str, str], aws: tuple[Any, Any], tmp_path: Path, number: signal.Signals
) -> None:
    """The signal arrives when the tables exist."""
    process = await start(variables, "--out", str(tmp_path))
    assert process.stdout is not None
    async for line in process.stdout:
        if b"passed  dynamodb: write" in line:
            process.send_signal(number)
            break
    await asyncio.wait_for(process.stdout.read(), EXIT_S)

    assert await wait_for_exit(process) == 1
    report = json.loads((tmp_path / "selftest.json").read_text())
    assert report["is_interrupted"] and not report["passed"] and report["left"] == []
    assert await list_left(aws, variables["CHAT_REDIS_URL"]) == []


async def test_redis_that_is_in_use_is_not_changed(
    variables: dict[str, str], aws: tuple[Any, Any], tmp_path: Path
) -> None:
    """The chat checks are skipped, and the others run."""
    with redis_client(variables["CHAT_REDIS_URL"]) as client:
        client.set("{p0}:somebody", "data")
    process = await start(variables, "--out", str(tmp_path))
    output, _ = await asyncio.wait_for(process.communicate(), EXIT_S)

    report = json.loads((tmp_path / "selftest.json").read_text())
    statuses = {each["status"] for each in report["results"] if each["store"] == "chat"}
    assert process.returncode == 0, output.decode()
    assert statuses == {"skipped"}
    with redis_client(variables["CHAT_REDIS_URL"]) as client:
        assert client.get("{p0}:somebody") == b"data"


async def test_failed_checks_and_undeleted_tables_are_reported(
    dynamodb: str, s3: str, redis_url: str, aws: tuple[Any, Any]
) -> None:
    """Without some permissions one check fails, others run, and remaining tables are named."""
    names = Names.choose()
    async with DynamoProxy(dynamodb) as proxy:
        denied = Refuse("AccessDeniedException")
        proxy.rules.append(
            lambda call: denied if call.operation in ("DeleteTable", "BatchWriteItem") else None
        )
        keys = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
        cold = Cold(endpoint=s3, bucket=BUCKET, region=REGION, **keys)
        warm = settings_for(proxy.endpoint)
        settings = Settings(redis=patient_redis(redis_url), warm=warm, cold=cold)
        report = await run_selftest(settings, names, 0.0)
    tables, _ = aws
    for table in ("messages", "chat_session", "social", "directory"):
        await tables.delete_table(TableName=f"{names.prefix}-{table}")

    status = {(each.store, each.name): each.status for each in report.results}
    assert status["dynamodb", "batches"] == "failed"
    assert status["dynamodb", "conditional transaction"] == "passed"
    assert not report.has_passed
    assert len(report.left) == 4 and all(names.prefix in left for left in report.left)
    assert "AccessDeniedException" in report.to_markdown()
