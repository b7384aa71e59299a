"""The rules of the list of migrations, and the rate limit of a run."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from chatserver.config import Warm
from chatserver.errors import ConfigError
from chatserver.warm.dynamo.conditions import Expressions
from chatserver.warm.dynamo.rate_limiter import RateLimiter
from chatserver.warm.schema.active_version import (
    FIRST,
    NEWEST,
    OLDEST,
    SchemaState,
    check_schema,
    get_process_version,
)
from chatserver.warm.schema.migrations import MIGRATIONS
from chatserver.warm.schema.migrations.backfill import build_condition
from chatserver.warm.schema.migrations.migration import Migration, Repair
from chatserver.warm.tenant_item_scans import compute_item_bytes
from tests.integration.warm.schema.examples.migrations import EXAMPLES

ORDER = ("expand", "fill", "contract")


def test_migrations_are_numbered_without_gaps() -> None:
    """A number identifies one migration permanently. The first schema has number 1."""
    numbers = [each.number for each in MIGRATIONS]
    assert numbers == list(range(FIRST + 1, FIRST + 1 + len(MIGRATIONS)))
    assert max(numbers, default=FIRST) == NEWEST
    assert max((each.oldest for each in MIGRATIONS), default=FIRST) == OLDEST


@pytest.mark.parametrize("migrations", [MIGRATIONS, EXAMPLES])
def test_migrations_of_a_change_expand_then_fill_then_contract(
    migrations: tuple[Migration, ...],
) -> None:
    """Only a contract step refuses older processes."""
    changes: dict[str, list[Migration]] = {}
    for migration in migrations:
        changes.setdefault(migration.change, []).append(migration)

    for steps in changes.values():
        phases = [ORDER.index(step.kind) for step in steps]
        assert phases == sorted(phases)
        for step in steps:
            assert (step.oldest > 0) == (step.kind == "contract")
            assert step.oldest < step.number
            assert (step.repair is not None) == (step.kind != "expand")
            assert step.index is None or step.kind == "expand"
            assert step.index is None or step.index.since == step.number


def test_update_of_a_repair_has_all_read_values_as_its_condition() -> None:
    """The condition has the revision and the old values of changed attributes."""
    item = {"rev": {"N": "4"}, "b": {"S": "old"}, "c": {"S": "gone"}}

    condition = build_condition(item, Repair({"a": {"S": "1"}, "b": {"S": "2"}}, ("c",)))

    expressions = Expressions()
    expressions.add_condition("ConditionExpression", condition)
    assert expressions.build() == {
        "ConditionExpression": (
            "#0 = :0e0 AND attribute_not_exists(#1) AND #2 = :2e1 AND #3 = :3e2"
        ),
        "ExpressionAttributeNames": {"#0": "rev", "#1": "a", "#2": "b", "#3": "c"},
        "ExpressionAttributeValues": {":0e0": item["rev"], ":2e1": item["b"], ":3e2": item["c"]},
    }


def test_process_can_use_an_older_schema_but_no_unknown_one() -> None:
    """`warm.schema_version` is at most the newest schema of the release."""
    assert get_process_version(Warm()) == NEWEST
    assert get_process_version(Warm(schema_version=1)) == 1
    with pytest.raises(ConfigError, match="is 99, but must be at most"):
        get_process_version(Warm(schema_version=99))


def test_schema_refuses_only_processes_that_are_too_old() -> None:
    """A schema that is newer than the process is not refused by itself."""
    check_schema(SchemaState(9, 2), 2, Warm())
    with pytest.raises(ConfigError) as caught:
        check_schema(SchemaState(9, 3), 2, Warm())

    assert caught.value.problems == [
        "DynamoDB tables chat_* have schema 9, which requires processes of schema 3 or newer; "
        "this one has 2. Deploy a newer release"
    ]


class Time:
    """A clock that its own sleep advances."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


async def test_rate_limiter_allows_no_more_than_its_rate() -> None:
    """Writes that cost more than estimated delay later ones."""
    clock = Time()
    limiter = RateLimiter(10.0, clock, clock.sleep)
    moments = []
    for _ in range(50):
        await limiter.acquire(2.0)
        moments.append(clock.now)
        limiter.adjust(1.0)  # each write costs three units, one more than estimated

    assert moments[-1] == pytest.approx(49 * 0.3)
    assert all(b - a == pytest.approx(0.3) for a, b in itertools.pairwise(moments))


async def test_rate_limiter_without_a_rate_never_waits() -> None:
    """No rate means no limit."""
    clock = Time()
    limiter = RateLimiter(None, clock, clock.sleep)

    await asyncio.gather(*(limiter.acquire(1e9) for _ in range(3)))

    assert clock.now == 0


def test_size_of_an_item_counts_names_and_values() -> None:
    """The sizes are those documented by DynamoDB: a number takes about half its digits."""
    item = {"ab": {"S": "äb"}, "n": {"N": "123456"}, "m": {"M": {"k": {"BOOL": True}}}}

    assert compute_item_bytes(item) == (2 + 3) + (1 + 4) + (1 + 3 + 1 + 1 + 1)
