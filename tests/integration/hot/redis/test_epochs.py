"""get_or_create_epoch.lua: a Redis that may have lost data starts a new epoch."""

from __future__ import annotations

import time

from ulid import ULID

from tests.integration.hot.support import Scripts

SUFFIX = "0" * 15


def get_or_create_epoch(
    scripts: Scripts, replid: str, number: int, partitions: int = 1, came_from: str = ""
) -> tuple[str, int]:
    """Return epoch and partition count for a connecting process; a new epoch ends with `number`."""
    epoch, count, *_ = scripts.run(
        "get_or_create_epoch",
        {
            "replid": replid,
            "came_from": came_from,
            "suffix": f"{SUFFIX}{number}",
            "partitions": partitions,
            "tenant": "",
        },
    )
    return epoch.decode(), count


def test_epoch_of_empty_redis_is_a_ulid_of_its_time(scripts: Scripts) -> None:
    """The time is that of Redis, because the clocks of processes may differ."""
    epoch, count = get_or_create_epoch(scripts, "r1", 1, 4)

    assert abs(ULID.from_str(epoch).timestamp - time.time()) < 60
    assert (epoch[10:], count) == (f"{SUFFIX}1", 4)


def test_epoch_of_the_same_redis_stays(scripts: Scripts) -> None:
    """Processes that connect later, or reconnect, get the same epoch."""
    first = get_or_create_epoch(scripts, "r1", 1)

    assert get_or_create_epoch(scripts, "r1", 2) == first


def test_epoch_of_another_redis_is_later(scripts: Scripts) -> None:
    """A Redis with another replication id may have an older state (guarantee P5)."""
    first = get_or_create_epoch(scripts, "r1", 1)

    second = get_or_create_epoch(scripts, "r2", 2)

    assert second > first
    assert get_or_create_epoch(scripts, "r2", 3) == second


def test_epoch_is_later_than_one_from_a_clock_that_was_ahead(scripts: Scripts) -> None:
    """After a failover to a machine with a slower clock, inbox positions still increase (P4)."""
    ahead = str(ULID.from_timestamp(time.time() + 3600))
    scripts.redis.hset(scripts.keys.epoch(0), mapping={"epoch": ahead, "replid": "r1"})

    epoch, _ = get_or_create_epoch(scripts, "r2", 2)

    assert epoch > ahead
    assert ULID.from_str(epoch).milliseconds == ULID.from_str(ahead).milliseconds + 1


def test_epoch_with_another_partition_count_is_not_changed(scripts: Scripts) -> None:
    """The caller gets the stored count, and nothing changes."""
    first = get_or_create_epoch(scripts, "r1", 1, 4)

    assert get_or_create_epoch(scripts, "r2", 2, 8) == first
    assert get_or_create_epoch(scripts, "r1", 3, 4) == first


def test_epoch_of_a_partition_that_moved_without_loss_stays(scripts: Scripts) -> None:
    """A moved slot keeps its epoch, and the new server's replication id is recorded."""
    first = get_or_create_epoch(scripts, "r1", 1)

    assert get_or_create_epoch(scripts, "r2", 2, came_from="r1") == first
    assert get_or_create_epoch(scripts, "r2", 3) == first
    assert get_or_create_epoch(scripts, "r1", 4) > first


def test_epoch_of_a_partition_from_an_unknown_server_is_later(scripts: Scripts) -> None:
    """The slot did not move from the server that was recorded last."""
    first = get_or_create_epoch(scripts, "r1", 1)

    assert get_or_create_epoch(scripts, "r3", 2, came_from="r2") > first


def test_epoch_of_a_partition_that_lost_its_data_is_new(scripts: Scripts) -> None:
    """There is no stored epoch."""
    epoch, _ = get_or_create_epoch(scripts, "r2", 2, came_from="r1")

    assert epoch.endswith("2")


def test_gateways_of_users_are_never_a_listpack(scripts: Scripts) -> None:
    """In a listpack, Redis would scan hundreds of users for each message."""
    get_or_create_epoch(scripts, "r1", 1)

    scripts.redis.hset(scripts.keys.where(0), "alice", "1")
    assert scripts.redis.object("encoding", scripts.keys.where(0)) == b"hashtable"
