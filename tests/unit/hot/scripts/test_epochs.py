"""get_or_create_epoch.lua: a Redis that lost data starts a new epoch, greater than all before."""

from __future__ import annotations

from typing import Any

from ulid import ULID

from tests.unit.hot.scripts.script_runner import ScriptRunner

SUFFIX = "0123456789ABCDEF"


def get_or_create(
    scripts: ScriptRunner,
    replid: str,
    *,
    came_from: str = "",
    partitions: int = 1,
    suffix: str = SUFFIX,
    tenant: str = "",
) -> tuple[str, int]:
    """Return the epoch and the partition count."""
    reply = run_script(
        scripts,
        {
            "replid": replid,
            "came_from": came_from,
            "suffix": suffix,
            "partitions": partitions,
            "tenant": tenant,
        },
    )
    return reply[0], reply[1]


def run_script(scripts: ScriptRunner, args: dict[str, Any]) -> Any:
    """Return the whole reply."""
    return scripts.run(
        "get_or_create_epoch",
        {
            "epoch": scripts.keys.epoch(0),
            "seqs": scripts.keys.seqs(0),
            "where": scripts.keys.where(0),
        },
        args,
    )


def test_get_or_create_epoch_creates_a_ulid_of_redis_time(scripts: ScriptRunner) -> None:
    """The first epoch has the time of Redis and the given random part."""
    epoch, partitions = get_or_create(scripts, "r1")

    assert ULID.from_str(epoch).milliseconds == scripts.clock.now_ms
    assert epoch.endswith(SUFFIX)
    assert partitions == 1


def test_get_or_create_epoch_of_the_same_redis_returns_it(scripts: ScriptRunner) -> None:
    """All processes get the same epoch; the random part of later ones is ignored."""
    first = get_or_create(scripts, "r1")
    scripts.clock.advance_ms(1000)

    assert get_or_create(scripts, "r1", suffix="F" * 16) == first


def test_get_or_create_epoch_of_another_redis_is_greater(scripts: ScriptRunner) -> None:
    """A replica that was promoted may have lost data: it starts a new epoch."""
    first, _ = get_or_create(scripts, "r1", suffix="Z" * 16)

    second, _ = get_or_create(scripts, "r2", suffix="0" * 16)

    assert second > first
    assert get_or_create(scripts, "r2")[0] == second


def test_get_or_create_epoch_is_greater_if_the_clock_was_set_back(scripts: ScriptRunner) -> None:
    """Epochs increase even if the clock of the new Redis is behind."""
    first, _ = get_or_create(scripts, "r1", suffix="Z" * 16)
    scripts.clock.advance_ms(-3_600_000)

    second, _ = get_or_create(scripts, "r2", suffix="0" * 16)

    assert second > first
    assert ULID.from_str(second).milliseconds == ULID.from_str(first).milliseconds + 1


def test_get_or_create_epoch_moved_without_loss_keeps_it(scripts: ScriptRunner) -> None:
    """A partition that moved to another Redis with all its data stays in its epoch."""
    first, _ = get_or_create(scripts, "r1")

    assert get_or_create(scripts, "r2", came_from="r1")[0] == first
    assert get_or_create(scripts, "r2")[0] == first
    assert get_or_create(scripts, "r4", came_from="r3")[0] > first


def test_get_or_create_epoch_with_another_partition_count_changes_nothing(
    scripts: ScriptRunner,
) -> None:
    """A process with a wrong setting gets the partition count of the data."""
    first, _ = get_or_create(scripts, "r1", partitions=4)

    assert get_or_create(scripts, "r2", partitions=8) == (first, 4)
    assert scripts.redis.hget(scripts.keys.epoch(0), "replid") == "r1"


def test_get_or_create_epoch_of_another_tenant_names_the_owner_and_changes_nothing(
    scripts: ScriptRunner,
) -> None:
    """A process with the address of another tenant's Redis gets the owner's name."""
    first, _ = get_or_create(scripts, "r1", tenant="acme")
    args = {"replid": "r2", "came_from": "", "suffix": SUFFIX, "partitions": 1, "tenant": "globex"}

    assert run_script(scripts, args) == [first, 1, "acme", ""]
    assert scripts.redis.hget(scripts.keys.epoch(0), "replid") == "r1"


def test_get_or_create_epoch_of_a_blocked_partition_returns_the_reason_and_writes_nothing(
    scripts: ScriptRunner,
) -> None:
    """The tenant is deleted: the hash keeps owner and reason, and no process adds an epoch."""
    key = scripts.keys.epoch(0)
    scripts.redis.hset(key, mapping={"tenant": "acme", "blocked": "it was deleted"})
    args = {"replid": "r1", "came_from": "", "suffix": SUFFIX, "partitions": 1, "tenant": "acme"}

    assert run_script(scripts, args) == ["", 1, "acme", "it was deleted"]
    assert scripts.redis.hgetall(key) == {"tenant": "acme", "blocked": "it was deleted"}
    assert scripts.redis.keys() == [key]
