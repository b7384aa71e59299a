"""Durability of commits: replicas and disk, or else DynamoDB.

::

    commit ─► WAIT or WAITAOF ─► enough replicas, on disk ─────────────────────────► reply
                     └─► too few ─► poll until the backlog is persisted up to the commit ─► reply
                                            └─► deadline, or a new epoch ─► Unavailable

A master that was just promoted has no replica, so no WAIT can succeed until its predecessor is back
or another replica is added. Until then, the persist worker's checkpoint is the proof that a commit
survives the loss of the master (guarantee P1). A WAIT for replicas that are not connected would
block the connection, so none is sent while INFO shows that too few are.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Final

from chatserver.errors import Unavailable
from chatserver.hot.redis.pipelined_connection import Reply
from chatserver.hot.redis.scripts import Value

LAG_S_MAX: Final = 2  # a replica acknowledges each second; one that is later counts as missing

_REPLICA: Final = re.compile(r"^slave\d+:.*state=online,.*lag=(\d+)", re.MULTILINE)


class Unconfirmed(Unavailable):
    """A write ran, but too few replicas have confirmed it, or it is not on disk.

    `reply` is the reply to the write.
    """

    def __init__(self, message: str, reply: Reply) -> None:
        super().__init__(message)
        self.reply = reply


@dataclasses.dataclass(frozen=True, slots=True)
class Durability:
    """Durability that a commit requires: a number of replicas, and fsync."""

    replicas: int
    fsync: bool

    @property
    def is_on(self) -> bool:
        """True if replicas or fsync are required."""
        return self.fsync or self.replicas > 0

    def build_command(self, wait_ms: int) -> tuple[Value, ...]:
        """Return the WAIT or WAITAOF command to send after a call."""
        if self.fsync:
            # WAITAOF counts a replica only after the write is on the replica's disk.
            return ("WAITAOF", 1, self.replicas, wait_ms)
        return ("WAIT", self.replicas, wait_ms)

    def check_reply(self, reply: Reply, waited: Reply) -> Reply:
        """Return `reply` if the write is durable, otherwise the error.

        `waited` is the reply to WAIT or WAITAOF.
        """
        if isinstance(reply, Exception):
            return reply
        if isinstance(waited, Exception):
            return waited
        disks, replicas = waited if self.fsync else (0, waited)
        if self.fsync and not disks:
            return Unconfirmed("redis: the write is not on disk yet and may be lost", reply)
        if replicas < self.replicas:
            return self.check_without_replicas(reply, replicas)
        return reply

    def check_without_replicas(self, reply: Reply, replicas: int) -> Reply:
        """Return the error for a write that only `replicas` replicas can have."""
        if isinstance(reply, Exception):
            return reply
        have = f"{replicas} of {self.replicas} replicas have the write"
        return Unconfirmed(f"redis: {have}; it may be lost", reply)


def count_replicas(info: str) -> int:
    """Return how many replicas in an INFO reply are connected and acknowledge writes."""
    return sum(int(match[1]) <= LAG_S_MAX for match in _REPLICA.finditer(info))
