"""DynamoDB usage: exactly as the server reports it, by feature, and in the command."""

from __future__ import annotations

import ast
import asyncio
import collections
import contextlib
import datetime
import functools
import gc
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast, get_args

import pytest
from pydantic import SecretStr

from chatserver import config
from chatserver.config import Settings, Warm
from chatserver.container.storage import StorageContainer, open_storage_container
from chatserver.domain.clock import SystemClock
from chatserver.features.accounts.container import AccountContainer
from chatserver.features.attachments.container import AttachmentContainer
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.privacy.container import PrivacyContainer
from chatserver.features.push.container import PushContainer
from chatserver.features.social.container import SocialContainer
from chatserver.features.webhooks.container import WebhookContainer
from chatserver.hot.redis.factory import open_hot
from chatserver.operations.cost import report as costs
from chatserver.operations.cost.hot import UsageTotals
from chatserver.telemetry import metrics
from chatserver.telemetry.dynamodb_usage import CHATS_MAX, Feature, Part, Spending, UsageAccumulator
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.dynamo.metering import READS
from chatserver.warm.messages.messages import Messages
from tests.integration.warm.support import Tables, batch, message, refuse
from tests.integration.workers.support import (
    PATIENT_VARIABLES,
    Gateway,
    be_on_one_day,
    make_direct,
    open_container,
    patient_redis,
    persist,
    stored_of,
    texts,
    variables_of,
)
from tests.support.servers.processes import free_port
from workers.archive.container import ArchiveContainer

ROOT = Path(__file__).parents[4]
SECRET = "0123456789abcdef0123456789abcdef"


def today() -> str:
    """Return the current day in the format of the usage totals."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


class Tap:
    """Sums the units that the server reports for a process, without the product's meter."""

    def __init__(self, client: DynamoClient) -> None:
        self.units: collections.Counter[tuple[str, str]] = collections.Counter()
        client.meter.usage.drain()  # count from here on
        http = client._http
        assert http is not None
        call = http.call

        async def call_and_record(operation: str, request: dict[str, Any]) -> dict[str, Any]:
            answer = await call(operation, request)
            self._record(operation, answer)
            return answer

        cast(Any, http).call = call_and_record

    def _record(self, name: str, answer: dict[str, Any]) -> None:
        found = answer.get("ConsumedCapacity") or ()
        for each in [found] if isinstance(found, dict) else found:
            kind = "read" if name in READS else "write"
            table = each["TableName"].partition("_")[2]
            self.units[table, kind] += each["CapacityUnits"]


def by_table(spending: Spending) -> dict[tuple[str, str], float]:
    """Return the units by table and kind, summed over features."""
    found: collections.Counter[tuple[str, str]] = collections.Counter()
    for (_, table, kind), amount in spending.units.items():
        found[table, kind] += amount
    return dict(found)


def run_cost(*options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CHAT_")}
    return subprocess.run(
        [sys.executable, "-m", "chatserver.cli.main", "cost", *options],
        env=kept | variables,
        capture_output=True,
        text=True,
        timeout=90,
    )


async def test_report_has_the_units_that_the_server_counted(
    redis_url: str, tables: Tables, s3: str, tmp_path: Path
) -> None:
    """The totals in Redis and in the report equal the server's count, for writes and reads."""
    await be_on_one_day()
    async with open_container(redis_url, tables.settings) as container:
        tap = Tap(container.messages._client)
        gateway = Gateway(container.hot)
        chat = await make_direct(container)
        await gateway.send(chat, *texts(60), "x" * 3000)
        await persist(container)
        assert len(await stored_of(container, chat.chat)) == 61
        assert len(await container.older_tiers.list_before(chat.chat, 40, 20)) == 20
        variables = variables_of(container)
    async with open_hot(patient_redis(redis_url)) as hot:
        found = await UsageTotals(hot).get_day(today())
    prices = tmp_path / "prices.toml"
    prices.write_text("[dynamodb]\nwrite_units_per_million_usd = 1000000\n", "utf-8")
    ran = await asyncio.to_thread(
        run_cost, "--json", "--prices", str(prices), "--days", "2", **variables,
        CHAT_COLD_ENDPOINT=s3, CHAT_COLD_BUCKET="missing-bucket",
        CHAT_COLD_ACCESS_KEY="test", CHAT_COLD_SECRET_KEY="testtest",
    )  # fmt: skip
    report = json.loads(ran.stdout)

    server = {key: amount for key, amount in tap.units.items() if amount}
    # The tap was set after the process record was written; it counts the deletion of the record.
    assert by_table(found) == server
    assert found.messages == 61
    assert found.units["persist", "messages", "write"] == 60 * 4 + 7
    assert found.chats["write"][chat.chat] >= 60 * 4 + 7
    assert found.chats["read"][chat.chat] == found.chat_totals["read"]
    for kind in ("write", "read"):
        reported = sum(each[f"{kind}_units"] for each in report["features"])
        assert reported == report["total"][f"{kind}_units"]
        assert reported == sum(amount for (_, each), amount in server.items() if each == kind)
    read_usd = report["total"]["read_units"] * 0.125 / 1e6
    assert report["total"]["usd"] == pytest.approx(report["total"]["write_units"] + read_usd)
    assert report["per_message"]["write_units"] == report["total"]["write_units"] / 61
    assert report["chats"][0]["name"] == chat.chat
    (stored,) = [each for each in report["tiers"] if each["name"] == "messages"]
    assert stored["items"] == 61
    assert next(each for each in report["tiers"] if each["tier"] == "redis")["bytes"] > 100_000
    # The missing bucket is an error. The rest is reported.
    assert ran.returncode == 1
    assert "no S3 sizes" in ran.stderr
    assert "missing-bucket" in ran.stderr or "NoSuchBucket" in ran.stderr


async def test_text_report_names_the_store_that_is_down(redis_url: str, tables: Tables) -> None:
    """Without Redis or DynamoDB, the exit code is 1 and the rest is reported."""
    async with open_hot(patient_redis(redis_url)) as hot:
        usage = UsageAccumulator()
        usage.record_units("persist", "messages", "write", 4.0)
        usage.record_chat_units("write", {"d-1": 1.0}, 4.0)
        usage.record_messages(1)
        await UsageTotals(hot).add(Part("p", 1, today(), usage.drain()))
    up = {
        **PATIENT_VARIABLES,
        "CHAT_REDIS_URL": redis_url,
        "CHAT_WARM_ENDPOINT": str(tables.settings.endpoint),
        "CHAT_WARM_TABLE_PREFIX": tables.settings.table_prefix,
        "CHAT_WARM_ACCESS_KEY": "test",
        "CHAT_WARM_SECRET_KEY": "test",
    }
    closed = f"127.0.0.1:{free_port()}"
    complete, no_redis, no_dynamodb, no_prices = await asyncio.gather(
        asyncio.to_thread(run_cost, "--objects-max", "0", **up),
        asyncio.to_thread(
            run_cost, "--objects-max", "0", **up | {"CHAT_REDIS_URL": f"redis://{closed}/0"}
        ),
        asyncio.to_thread(
            run_cost, "--objects-max", "0", **up | {"CHAT_WARM_ENDPOINT": f"http://{closed}"}
        ),
        asyncio.to_thread(run_cost, "--prices", "/nowhere.toml", **up),
    )

    assert (complete.returncode, complete.stderr) == (0, "")
    assert "1 message stored" in complete.stdout
    assert "4.0 * 0.625/1,000,000 + 0.0 * 0.125/1,000,000" in complete.stdout
    assert "d-1" in complete.stdout
    assert "messages/sender" in complete.stdout
    assert no_redis.returncode == no_dynamodb.returncode == 1
    assert "no units and no Redis data" in no_redis.stderr
    assert closed in no_redis.stderr
    assert "messages/sender" in no_redis.stdout
    assert "no DynamoDB sizes" in no_dynamodb.stderr
    assert "1 message stored" in no_dynamodb.stdout
    assert (no_prices.returncode, no_prices.stdout) == (2, "")
    assert "/nowhere.toml" in no_prices.stderr


async def test_repeated_usage_part_is_added_once(redis_url: str) -> None:
    """A repeated or late part changes nothing. Other processes and days have their own parts."""
    usage = UsageAccumulator()
    usage.record_units("persist", "messages", "write", 2.5)
    spending = usage.drain()
    async with open_hot(patient_redis(redis_url)) as hot:
        totals = UsageTotals(hot)
        for process, number in (("a", 1), ("a", 2), ("a", 2), ("a", 1), ("b", 1), ("b", 1)):
            await totals.add(Part(process, number, "2026-01-31", spending))
        await totals.add(Part("a", 3, "2026-02-01", spending))

        first, second = [await totals.get_day(day) for day in ("2026-01-31", "2026-02-01")]
        nothing = await totals.get_day("2026-02-02")
        ttls = [
            await hot.call("TTL", key)
            for key in (hot.keys.cost_units("2026-01-31"), hot.keys.cost_flushes("2026-01-31"))
        ]

    assert first.units == {("persist", "messages", "write"): 7.5}
    assert second.units == {("persist", "messages", "write"): 2.5}
    assert nothing.is_empty
    assert all(0 < ttl <= 40 * 86_400 for ttl in ttls)


async def test_usage_by_chat_is_bounded_and_within_its_error(redis_url: str) -> None:
    """The most expensive of thousands of chats are listed, and no cost is overestimated."""
    day = today()
    async with open_hot(patient_redis(redis_url)) as hot:
        totals = UsageTotals(hot)
        for number in range(1, 6):
            usage = UsageAccumulator()
            for n in range(900):
                usage.record_chat_units("write", {f"small-{number}-{n}": 1.0}, 1.0)
            usage.record_chat_units("write", {"expensive": 1.0, "": 9.0}, 1_000.0)
            usage.record_units("persist", "messages", "write", 1_000.0)
            await totals.add(Part("p", number, day, usage.drain()))
        found = await totals.get_day(day)

    assert len(found.chats["write"]) <= 2 * CHATS_MAX
    assert found.chat_totals["write"] == 5 * 1_000
    error = costs.compute_chats_error(found)["write"]
    assert 500 - error <= found.chats["write"]["expensive"] <= 500
    assert error <= 5_000 / (CHATS_MAX + 1)
    assert max(found.chats["write"], key=lambda chat: found.chats["write"][chat]) == "expensive"


@contextlib.asynccontextmanager
async def opened_api(redis_url: str, warm: Warm) -> AsyncIterator[StorageContainer]:
    """Open the container of an API process."""
    settings = Settings(
        redis=patient_redis(redis_url),
        warm=warm,
        auth=config.Auth(secret=SecretStr(SECRET)),
    )
    async with open_storage_container(
        role="api", settings=settings, clock=SystemClock()
    ) as container:
        yield container


def clients_without_feature() -> Iterator[str]:
    """Yield the types of the product's objects that hold a DynamoDB client without a feature."""
    for thing in gc.get_objects():
        name = str(type(thing).__module__)
        if not name.startswith(("chatserver.", "workers.")) or isinstance(thing, StorageContainer):
            continue
        held = [*vars(thing).values()] if hasattr(thing, "__dict__") else gc.get_referents(thing)
        if any(isinstance(each, DynamoClient) and each.feature == "other" for each in held):
            yield f"{name}.{type(thing).__name__}"


def build_everything(container: StorageContainer) -> None:
    """Create all objects of the container, of the features and of the archive worker."""
    kinds = (
        AccountContainer, ArchiveContainer, AttachmentContainer, CompanionContainer,
        PrivacyContainer, PushContainer, SocialContainer, WebhookContainer,
    )  # fmt: skip
    for made in (container, *(container.get(kind) for kind in kinds)):
        for cls in type(made).__mro__:
            for name, value in vars(cls).items():
                if isinstance(value, functools.cached_property):
                    getattr(made, name)


async def test_every_repository_has_a_client_with_a_feature(redis_url: str, tables: Tables) -> None:
    """If this fails, pass `dynamodb.for_feature(…)` in the container."""
    gc.collect()
    before = collections.Counter(clients_without_feature())
    async with (
        open_container(
            redis_url, tables.settings, auth=config.Auth(secret=SecretStr(SECRET))
        ) as worker,
        opened_api(redis_url, tables.settings) as api,
    ):
        build_everything(worker)
        build_everything(api)
        found = collections.Counter(clients_without_feature())

    assert dict(found - before) == {}


def test_dynamodb_client_is_passed_on_with_a_feature_only() -> None:
    """The result of `open_dynamodb` is named `dynamodb` and passed on only by `for_feature`."""
    # These choose features themselves, which the test above checks.
    exceptions = {"Connections", "make_api_keys"}
    folders = (ROOT / "chatserver", ROOT / "workers")
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.withitem) and "open_dynamodb(" in ast.unparse(node):
                assert ast.unparse(node).endswith(" as dynamodb"), path
            if isinstance(node, ast.Call) and ast.unparse(node.func) not in exceptions:
                arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
                assert not any(
                    isinstance(each, ast.Name) and each.id == "dynamodb" for each in arguments
                ), (path, ast.unparse(node))


def total_of(metric: Any, **labels: str) -> float:
    return sum(
        sample.value
        for family in metric.collect()
        for sample in family.samples
        if sample.name.endswith("_total") and labels.items() <= sample.labels.items()
    )


async def test_failures_and_retries_are_counted_by_feature(
    tables: Tables, no_backoff: None
) -> None:
    """Tested are a throttled call, its retry, and a failed condition."""
    client = tables.client.for_feature("patterns")
    counted = (metrics.DYNAMODB_CALLS, metrics.DYNAMODB_RETRIES)

    def now() -> list[float]:
        results = ("ok", "throttled", "failed", "condition")
        calls = [total_of(counted[0], feature="patterns", result=each) for each in results]
        return [*calls, total_of(counted[1], feature="patterns")]

    before = now()
    tables.faults.add("PutItem", refuse("ThrottlingException"), refuse("InternalServerError", 500))
    table = tables.settings.table_prefix + "directory"
    item = {"PK": {"S": "x"}, "SK": {"S": "x"}}
    request = {"TableName": table, "Item": item, "ConditionExpression": "attribute_not_exists(PK)"}

    await client.call("put_item", request)
    with contextlib.suppress(Exception):
        await client.call("put_item", request)

    assert [new - old for new, old in zip(now(), before, strict=True)] == [1, 1, 1, 1, 2]
    assert total_of(metrics.DYNAMODB_WRITE_UNITS, feature="patterns", table="directory") >= 1


async def test_batch_with_unprocessed_items_costs_each_item_once(tables: Tables) -> None:
    """The units do not depend on the number of calls."""
    client = tables.client.for_feature("persist")
    client.meter.usage.drain()
    tables.faults.leave_unprocessed(3, 0, 4)
    items = batch(*(message(seq) for seq in range(1, 11)))

    await Messages(client).put_batch(items, 20)

    spent = client.meter.usage.drain()
    # The write shards of chats are read from `directory` too.
    messages = {key: units for key, units in spent.units.items() if key[1] == "messages"}
    assert messages == {("persist", "messages", "write"): 30.0}
    assert (spent.messages, spent.chats["write"]) == (10, {"d-1": 30.0})


def test_feature_names_are_lowercase_letters() -> None:
    """They are parts of field names that are separated by colons."""
    assert all(word.isalpha() and word.islower() for word in get_args(Feature))
