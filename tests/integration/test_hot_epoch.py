"""epoch.lua: each life of the hot tier has a name; a Redis that may have gone back gets another."""

from __future__ import annotations

from tests.integration.hot_support import Scripts

pytest_plugins = ["tests.integration.hot_fixtures"]


def learn(
    scripts: Scripts, replid: str, candidate: str, partitions: int = 1, came_from: str = ""
) -> tuple[str, int]:
    """Ask for the epoch as a process that just connected."""
    epoch, count = scripts.run(
        "epoch",
        {"epoch": scripts.keys.epoch(0)},
        {
            "replid": replid,
            "came_from": came_from,
            "candidate": candidate,
            "partitions": partitions,
        },
    )
    return epoch.decode(), count


def test_epoch_of_empty_redis_is_made(scripts: Scripts) -> None:
    """The first process names the epoch."""
    assert learn(scripts, "r1", "E1", 4) == ("E1", 4)


def test_epoch_of_the_same_redis_stays(scripts: Scripts) -> None:
    """Who connects later, or again, finds the same."""
    learn(scripts, "r1", "E1")

    assert learn(scripts, "r1", "E2") == ("E1", 1)


def test_epoch_of_another_redis_is_another(scripts: Scripts) -> None:
    """A Redis with another replication id may have gone back in time (promise P5)."""
    learn(scripts, "r1", "E1")

    assert learn(scripts, "r2", "E2") == ("E2", 1)
    assert learn(scripts, "r2", "E3") == ("E2", 1)


def test_epoch_with_another_partition_count_is_refused_and_kept(scripts: Scripts) -> None:
    """The caller learns the count that was set, and changes nothing."""
    learn(scripts, "r1", "E1", 4)

    assert learn(scripts, "r2", "E2", 8) == ("E1", 4)
    assert learn(scripts, "r1", "E3", 4) == ("E1", 4)


def test_epoch_of_a_partition_that_moved_without_loss_stays(scripts: Scripts) -> None:
    """A slot that was handed over in order takes its epoch along, and the new server signs it."""
    learn(scripts, "r1", "E1")

    assert learn(scripts, "r2", "E2", came_from="r1") == ("E1", 1)
    assert learn(scripts, "r2", "E3") == ("E1", 1)
    assert learn(scripts, "r1", "E4") == ("E4", 1)


def test_epoch_of_a_partition_that_came_from_elsewhere_is_another(scripts: Scripts) -> None:
    """The one who saw it move knows another origin than the one that was signed last."""
    learn(scripts, "r1", "E1")

    assert learn(scripts, "r3", "E2", came_from="r2") == ("E2", 1)


def test_epoch_of_a_partition_that_was_lost_on_the_way_is_another(scripts: Scripts) -> None:
    """There is nothing to go on with."""
    assert learn(scripts, "r2", "E2", came_from="r1") == ("E2", 1)
