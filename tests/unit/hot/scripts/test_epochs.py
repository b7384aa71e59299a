"""get_or_create_epoch.lua: a Redis that lost data starts a new epoch, greater than all before."""

from __future__ import annotations

from typing import Any

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
            "where": scripts.keys.where(0),
        },
        args,
    )


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
