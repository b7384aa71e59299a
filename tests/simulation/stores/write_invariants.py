"""Invariants of writes: states that the data in Redis and DynamoDB never has, even for a moment.

The invariants of idle stores cannot find such states, because later writes repair them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from chatserver.dev.aws_limits.item_sizes import Item
from tests.simulation.dynamodb.tables import Table
from tests.simulation.redis.keyspace import Keyspace
from tests.simulation.redis.values import Stream
from tests.support.history.violation import Violation

# Returns the seqs of a chat, up to a seq, that are neither in DynamoDB nor in S3.
FindUnstored = Callable[[str, int], Sequence[int]]
Fields = dict[bytes, bytes]


class WriteInvariants:
    """Checks writes just before they are applied; `violations` has what they would break."""

    def __init__(self, find_unstored: FindUnstored) -> None:
        self.violations: dict[Violation, None] = {}
        self._find_unstored = find_unstored
        self.commands: dict[bytes, Callable[[Keyspace, list[bytes]], None]] = {
            b"HSET": self._check_hset,
            b"XTRIM": self._check_xtrim,
        }

    def _add(self, rule: str, text: str) -> None:
        self.violations[Violation(rule, text)] = None

    def _check_hset(self, db: Keyspace, args: list[bytes]) -> None:
        key = args[0]
        if key.endswith(b":checkpoint"):
            check = _find_lower_checkpoint
        elif b":lease:" in key:
            check = functools.partial(_find_taken_lease, now_ms=db.now_ms)
        else:
            return
        before: Fields = db.read(key, dict) or {}
        new = dict(zip(args[1::2], args[2::2], strict=True))
        if text := check(before, new):
            self._add("LEASE" if b":lease:" in key else "CHECKPOINT", f"{key.decode()}: {text}")

    def _check_xtrim(self, db: Keyspace, args: list[bytes]) -> None:
        """Check that the newest entry that a log loses is stored.

        Loading a chat removes the entries up to the newest in DynamoDB, which may still lack
        earlier ones of the same batch. The backlog has these.
        """
        partition, is_log, chat = args[0].partition(b":log:")
        if not is_log or args[1] != b"MINID":
            return
        log, upto = db.read(args[0], Stream), int(args[-1].partition(b"-")[0]) - 1
        head: Fields = db.read(partition + b":chat:" + chat, dict) or {}
        if not log or upto <= int(head.get(b"stored", 0)):
            return
        removed = [seq for seq, _ in log.ids if seq <= upto]
        if removed and upto in self._find_unstored(chat.decode(), upto):
            self._add("LOG_TRIM", f"{removed[-1]} of {chat.decode()} is only in Redis")

    def check_item(self, table: Table, old: Item | None, new: Item | None) -> None:
        """Check that a message does not return to an earlier state in DynamoDB."""
        if old is None or new is None or "mid" not in old or old["mid"] != new.get("mid"):
            return
        revs = [int(item.get("rev", {"N": "1"})["N"]) for item in (old, new)]
        was_deleted, is_deleted = ("deleted" in item for item in (old, new))
        if revs[1] < revs[0] or (was_deleted and not is_deleted):
            name = f"{old['chatid']['S']}#{old['seq']['N']}"
            self._add("ITEM_REV", f"{name} in {table.name} returns from rev {revs[0]} to {revs[1]}")


def _find_lower_checkpoint(before: Fields, new: Fields) -> str:
    old, moved = before.get(b"id"), new.get(b"id")
    if old is None or moved is None or _parse_id(moved) >= _parse_id(old):
        return ""
    return f"moved back from {old.decode()} to {moved.decode()}"


def _find_taken_lease(before: Fields, new: Fields, *, now_ms: int) -> str:
    owner, left_ms = before.get(b"owner"), int(before.get(b"until_ms", 0)) - now_ms
    if not owner or not new.get(b"owner") or new[b"owner"] == owner or left_ms <= 0:
        return ""
    return f"{new[b'owner'].decode()} took it {left_ms} ms before {owner.decode()}'s ended"


def _parse_id(text: bytes) -> tuple[int, ...]:
    return tuple(map(int, text.split(b"-")))
