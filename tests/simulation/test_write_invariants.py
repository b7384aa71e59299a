"""Invariants of writes: each finds a write that breaks it, and accepts the usual ones."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.dynamodb.tables import Table
from tests.simulation.redis.keyspace import Keyspace
from tests.simulation.redis.server import COMMANDS
from tests.simulation.stores.write_invariants import WriteInvariants

LEASE, CHECKPOINT, LOG = b"{p0}:lease:persist", b"{p0}:checkpoint", b"{p0}:log:g-1"
CHAT = b"{p0}:chat:g-1"
TABLE = Table(
    {
        "TableName": "messages",
        "KeySchema": [{"AttributeName": "chatid", "KeyType": "HASH"}],
        "AttributeDefinitions": [],
    }
)


def run(*calls: tuple[bytes, ...], now_ms: int = 1_000, stored: int = 0) -> list[str]:
    """Run commands; return the rules that they break. DynamoDB has the entries up to `stored`."""
    db, invariants = Keyspace(), WriteInvariants(lambda _, upto: range(stored + 1, upto + 1))
    db.now_us = now_ms * 1000
    for name, *args in calls:
        if name in invariants.commands:
            invariants.commands[name](db, args)
        COMMANDS[name].run(db, args)
    return [violation.rule for violation in invariants.violations]


def take(owner: bytes, until_ms: int) -> tuple[bytes, ...]:
    return (b"HSET", LEASE, b"owner", owner, b"token", b"1", b"until_ms", b"%d" % until_ms)


@pytest.mark.parametrize(
    ("first", "second", "rules"),
    [
        (take(b"a", 1_500), take(b"b", 2_500), ["LEASE"]),
        (take(b"a", 1_500), take(b"a", 2_500), []),
        (take(b"a", 1_000), take(b"b", 2_500), []),
        (take(b"a", 1_500), (b"HSET", LEASE, b"owner", b""), []),
    ],
)
def test_lease_has_one_owner_at_a_time(
    first: tuple[bytes, ...], second: tuple[bytes, ...], rules: list[str]
) -> None:
    """Another owner may take a lease that was released or has ended, but no other."""
    assert run(first, second) == rules


@pytest.mark.parametrize(
    ("moved", "rules"), [(b"9-5", ["CHECKPOINT"]), (b"10-1", []), (b"11-0", [])]
)
def test_checkpoint_never_moves_back(moved: bytes, rules: list[str]) -> None:
    """Ids are compared as numbers."""
    calls = [(b"HSET", CHECKPOINT, b"id", each) for each in (b"10-1", moved)]

    assert run(*calls) == rules


@pytest.mark.parametrize(
    ("bound", "stored", "rules"),
    [(b"3-0", 1, ["LOG_TRIM"]), (b"3-0", 2, []), (b"2-0", 1, []), (b"1-0", 0, [])],
)
def test_log_keeps_entries_that_are_not_stored(bound: bytes, stored: int, rules: list[str]) -> None:
    """An entry is in DynamoDB before its chat's log loses it, whatever `stored` in Redis is."""
    entries = [(b"XADD", LOG, b"%d-0" % seq, b"1", b"body") for seq in (1, 2, 3)]
    head = (b"HSET", CHAT, b"seq", b"3", b"stored", b"1")

    assert run(*entries, head, (b"XTRIM", LOG, b"MINID", bound), stored=stored) == rules


def make_item(mid: str, rev: int, **more: Any) -> dict[str, Any]:
    return {
        "chatid": {"S": "g-1"},
        "seq": {"N": "1"},
        "mid": {"S": mid},
        "rev": {"N": f"{rev}"},
    } | more


DELETED = {"deleted": {"BOOL": True}}


@pytest.mark.parametrize(
    ("old", "new", "rules"),
    [
        (make_item("m", 3), make_item("m", 1), ["ITEM_REV"]),
        (make_item("m", 3, **DELETED), make_item("m", 3), ["ITEM_REV"]),
        (make_item("m", 1), make_item("m", 3, **DELETED), []),
        (make_item("m", 3), make_item("n", 1), []),
        (None, make_item("m", 1), []),
    ],
)
def test_stored_message_never_returns_to_an_earlier_state(
    old: dict[str, Any] | None, new: dict[str, Any], rules: list[str]
) -> None:
    """A text that was edited or deleted is not stored again; another message may replace it."""
    invariants = WriteInvariants(lambda *_: ())

    invariants.check_item(TABLE, old, new)

    assert [violation.rule for violation in invariants.violations] == rules
