"""`chatserver doctor` reports each problem with its fix."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Sequence

import pytest

from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import open_s3
from chatserver.config import Cold, Redis
from chatserver.domain.clock import SystemClock
from chatserver.hot.chats.persist_backlog import Backlog
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.worker_leases import Lease
from chatserver.operations.doctor.dynamodb_checks import check_dynamodb
from chatserver.operations.doctor.model import DoctorFinding
from chatserver.operations.doctor.redis_checks import check_redis
from chatserver.operations.doctor.s3_checks import check_s3
from tests.integration.features.attachments.support import cold_settings
from tests.integration.warm.support import Tables
from tests.support.fake_clocks import ShiftedClock
from tests.support.servers.processes import StartRedis, free_port, redis_client, redis_url_of

CLI = (sys.executable, "-m", "chatserver.cli.main", "doctor")


class PausedClock(SystemClock):
    """The clock of a process that pauses for three seconds before and after a call."""

    def __init__(self) -> None:
        self.offset_s = -3.0

    def time(self) -> float:
        shown = super().time() + self.offset_s
        self.offset_s = 3.0
        return shown


def text_of(findings: Sequence[DoctorFinding], level: str) -> str:
    """Return the findings of a level with their fixes as text."""
    return "\n".join(f"{each.what} → {each.fix}" for each in findings if each.level == level)


async def test_redis_that_is_down_is_a_problem_with_its_address() -> None:
    """The problem names the address and the setting."""
    port = free_port()

    (finding,) = await check_redis(Redis(url=f"redis://127.0.0.1:{port}/0"), SystemClock())

    assert finding.level == "problem"
    assert str(port) in finding.what
    assert "CHAT_REDIS_URL" in finding.fix


async def test_redis_without_workers_replica_and_memory_limit_is_reported(redis_url: str) -> None:
    """Missing workers and a full backlog are problems; a missing replica or limit is a note."""
    settings, clock = Redis(url=redis_url, backlog_max=1000), SystemClock()
    before = await check_redis(settings, clock)
    async with open_hot(settings) as hot:
        for work in ("persist", "repair"):
            assert await Lease(
                hot=hot, partition=0, work=work, owner="w1", ttl_s=60, clock=clock
            ).claim()
        backlog = hot.keys.backlog(0)
        await hot.transaction(*[("XADD", backlog, "*", "g", "gw")] * 750)
        after = await check_redis(settings, clock, ["search"])
        newest = await Backlog(hot, 0).get_newest()
        await hot.call("HSET", hot.keys.checkpoint(0), "id", newest)
        persisted = await check_redis(settings, clock)

    problems, notes = text_of(before, "problem"), text_of(before, "note")
    assert "chatserver worker persist" in problems
    assert "chatserver worker repair" in problems
    assert "chatserver worker search" not in problems  # there is no index
    assert "chatserver worker search" in text_of(after, "problem")
    assert "maxmemory" in notes
    assert "has a replica" in notes
    assert "a worker `persist` serves each partition" in text_of(after, "ok")
    assert "unpersisted commits" in text_of(after, "problem")
    assert "unpersisted messages" not in text_of(persisted, "problem")  # kept for other readers


async def test_redis_that_evicts_keys_or_has_clock_skew_is_reported(
    start_redis: StartRedis,
) -> None:
    """An eviction policy prevents every start. Clock skew affects expiry."""
    server = start_redis()
    url = redis_url_of(server)
    began = time.monotonic()
    late = await check_redis(Redis(url=url), ShiftedClock(wall_s=-90.0))
    took_s = time.monotonic() - began
    with redis_client(url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")

    findings = await check_redis(Redis(url=url), SystemClock())

    skew = re.search(r"it is ([0-9.]+) s off", text_of(late, "note"))
    assert skew is not None
    assert 89.9 - took_s <= float(skew[1]) <= 90.1
    assert "noeviction" in text_of(findings, "problem")


async def test_redis_that_responds_late_has_no_clock_skew(redis_url: str) -> None:
    """A late response is not reported as clock skew."""
    findings = await check_redis(Redis(url=redis_url), PausedClock())

    assert "clock" in text_of(findings, "ok")
    assert "clock" not in text_of(findings, "note")


async def test_redis_with_another_number_of_partitions_is_a_problem(redis_url: str) -> None:
    """The number of partitions cannot change while Redis has data; the check writes nothing."""
    async with open_hot(Redis(url=redis_url)):
        pass
    with redis_client(redis_url) as client:
        before = set(client.keys())

        findings = await check_redis(Redis(url=redis_url, partitions=4), SystemClock())

        assert "initialized with 1" in text_of(findings, "problem")
        assert set(client.keys()) == before


async def test_doctor_writes_nothing_into_an_empty_redis(redis_url: str) -> None:
    """The first process creates the epochs, not a check."""
    findings = await check_redis(Redis(url=redis_url), SystemClock())

    assert "responds at" in text_of(findings, "ok")
    with redis_client(redis_url) as client:
        assert client.keys() == []


async def test_missing_table_and_unreachable_dynamodb_are_problems(tables: Tables) -> None:
    """The fix is the command that creates the table, or the setting of the endpoint."""
    complete = await check_dynamodb(tables.settings)
    name = f"{tables.settings.table_prefix}social"
    await tables.client.call("delete_table", {"TableName": name})
    missing = await check_dynamodb(tables.settings)
    unreachable = tables.settings.model_copy(update={"endpoint": f"http://127.0.0.1:{free_port()}"})

    assert text_of(complete, "problem") == ""
    assert "newest of this release" in text_of(complete, "ok")
    assert f"table {name} is missing → run `chatserver tables apply`" in text_of(missing, "problem")
    assert "CHAT_WARM_ENDPOINT" in text_of(await check_dynamodb(unreachable), "problem")


# S3


async def test_missing_or_incomplete_bucket_is_reported(s3: str) -> None:
    """The bucket is missing, without rules, as created by `tables apply`, or unreachable."""
    settings = cold_settings(s3)
    absent = await check_s3(settings)
    async with open_s3(settings) as store:
        await store.call("create_bucket")
        bare = await check_s3(settings)
        await apply_bucket(store, settings)
        made = await check_s3(settings)
        left = (await store.call("list_objects_v2")).get("Contents", [])
    unreachable = Cold.model_validate(
        {**settings.model_dump(), "endpoint": f"http://127.0.0.1:{free_port()}"}
    )

    assert "is missing → run `chatserver tables apply`" in text_of(absent, "problem")
    assert "unfinished uploads" in text_of(bare, "note")
    assert "can be written, read and deleted" in text_of(made, "ok")
    assert "unfinished uploads" not in text_of(made, "note")
    assert left == []
    assert "CHAT_COLD_ENDPOINT" in text_of(await check_s3(unreachable), "problem")


@pytest.mark.parametrize("is_json", [False, True])
async def test_doctor_reports_all_findings_of_all_stores(
    redis_url: str, tables: Tables, is_json: bool
) -> None:
    """A problem causes exit code 1. Passed checks are printed only on request."""
    warm = tables.settings
    process = await asyncio.create_subprocess_exec(
        *CLI,
        *(["--json"] if is_json else []),
        env={
            **os.environ,
            "CHAT_REDIS_URL": redis_url,
            "CHAT_WARM_ENDPOINT": str(warm.endpoint),
            "CHAT_WARM_REGION": warm.region or "",
            "CHAT_WARM_ACCESS_KEY": warm.access_key or "",
            "CHAT_WARM_SECRET_KEY": warm.secret_key.get_secret_value() if warm.secret_key else "",
            "CHAT_WARM_TABLE_PREFIX": warm.table_prefix,
            "CHAT_COLD_ENDPOINT": f"http://127.0.0.1:{free_port()}",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()

    text = out.decode()
    assert process.returncode == 1, err
    assert "problems" in err.decode()
    if is_json:
        lines = [json.loads(line) for line in text.splitlines()]
        stores = {line["store"] for line in lines}
        assert stores == {"settings", "redis", "dynamodb", "s3"}
        assert {line["level"] for line in lines} == {"ok", "note", "problem"}
    else:
        assert "openssl rand -hex 32" in text
        assert "PROBLEM s3: " in text
        assert "cold.endpoint" in text
        assert "is long enough" not in text


async def test_redis_that_rewrites_a_small_append_only_file_is_reported(
    start_redis: StartRedis,
) -> None:
    """Redis's own default rewrites the file every few seconds under load; ours does not."""
    url = redis_url_of(start_redis(appendonly="everysec"))
    shipped = await check_redis(Redis(url=url), SystemClock())
    with redis_client(url) as client:
        client.config_set("auto-aof-rewrite-min-size", "64mb")

    findings = await check_redis(Redis(url=url), SystemClock())

    assert "auto-aof-rewrite-min-size 1gb` (now 67 MB)" in text_of(findings, "note")
    assert "small append-only file" in text_of(shipped, "ok")
