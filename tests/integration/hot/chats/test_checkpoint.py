"""move_checkpoint.lua: only the lease holder moves the checkpoint of the backlog."""

from __future__ import annotations

import pytest

from tests.integration.hot.support import ALICE, BOB, EPOCH, Scripts, Sending


@pytest.fixture
def entries(scripts: Scripts) -> list[str]:
    """Commit four backlog entries of three messages each; return their ids. The token is 3."""
    scripts.open_chat(ALICE, BOB)
    for batch in range(4):
        scripts.accept(*[Sending(ALICE, f"r{batch}-{n}") for n in range(3)])
    scripts.redis.hset(scripts.keys.lease(0, "persist"), "token", 3)
    scripts.redis.hset(scripts.keys.epoch(0), "epoch", EPOCH)
    return [name.decode() for name, _ in scripts.redis.xrange(scripts.keys.backlog(0))]


def checkpoint(scripts: Scripts, entry_id: str, token: int = 3) -> int:
    """Move the checkpoint; a result of 0 means that the lease is lost."""
    ms, _, number = entry_id.partition("-")
    moved: int = scripts.run(
        "move_checkpoint",
        {"token": token, "epoch": EPOCH, "id": entry_id, "next": f"{ms}-{int(number) + 1}"},
    )
    return moved


def backlog_ids(scripts: Scripts) -> list[str]:
    """Return the ids of the entries in the backlog."""
    return [name.decode() for name, _ in scripts.redis.xrange(scripts.keys.backlog(0))]


def test_checkpoint_moves_and_trims(scripts: Scripts, entries: list[str]) -> None:
    """Exactly the persisted entries are removed from the backlog."""
    assert checkpoint(scripts, entries[1]) == 1
    assert backlog_ids(scripts) == entries[2:]
    assert scripts.hash(scripts.keys.checkpoint(0))["id"] == entries[1]


@pytest.mark.parametrize("token", [0, 2, 4])
def test_checkpoint_with_another_token_changes_nothing(
    scripts: Scripts, entries: list[str], token: int
) -> None:
    """A holder that paused beyond the end of its lease is fenced."""
    before = scripts.hash(scripts.keys.checkpoint(0))

    assert checkpoint(scripts, entries[1], token=token) == 0
    assert backlog_ids(scripts) == entries
    assert scripts.hash(scripts.keys.checkpoint(0)) == before


def test_checkpoint_without_a_lease_changes_nothing(scripts: Scripts, entries: list[str]) -> None:
    """Without the lease in Redis, no checkpoint is accepted."""
    scripts.redis.delete(scripts.keys.lease(0, "persist"))

    assert checkpoint(scripts, entries[1]) == 0
    assert backlog_ids(scripts) == entries


def test_checkpoint_repeated_changes_nothing(scripts: Scripts, entries: list[str]) -> None:
    """A call whose reply was lost may be retried."""
    checkpoint(scripts, entries[1])
    before = scripts.hash(scripts.keys.checkpoint(0))

    assert checkpoint(scripts, entries[1]) == 1
    assert scripts.hash(scripts.keys.checkpoint(0)) == before
    assert backlog_ids(scripts) == entries[2:]


def test_checkpoint_deletes_the_progress_of_chats_that_it_has_passed(
    scripts: Scripts, entries: list[str]
) -> None:
    """Entries persisted beyond the checkpoint stay recorded until the checkpoint passes them."""
    keys = scripts.keys
    chat = {"chat": "c"}
    assert scripts.run("record_persisting_id", {"token": 3, "id": entries[2]}) == 1
    now, outdated = {"token": 3, "epoch": EPOCH}, {"token": 2, "epoch": EPOCH}
    assert scripts.run("record_persisted_seqs", now, [{**chat, "upto": 9}]) == 1
    assert scripts.run("record_persisted_seqs", outdated, [{**chat, "upto": 12}]) == 0

    assert checkpoint(scripts, entries[1]) == 1
    assert scripts.hash(keys.progress(0)) == {"c": "9"}
    assert checkpoint(scripts, entries[2]) == 1
    assert scripts.hash(keys.progress(0)) == {}


def test_entries_of_an_earlier_epoch_are_not_recorded_as_persisted(
    scripts: Scripts, entries: list[str]
) -> None:
    """The lease survives a failover, but the seqs may be those of other entries now."""
    keys = scripts.keys
    scripts.redis.hset(keys.epoch(0), "epoch", "E2")
    args = {"token": 3, "epoch": EPOCH}

    assert scripts.run("record_persisted_seqs", args, [{"chat": "c", "upto": 9}]) == 0
    assert checkpoint(scripts, entries[1]) == 0

    assert scripts.hash(keys.progress(0)) == {}
    assert backlog_ids(scripts) == entries
