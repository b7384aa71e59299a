"""Durability of commits: the WAIT or WAITAOF command, and the check of its reply."""

from __future__ import annotations

import dataclasses

from chatserver.errors import Unavailable
from chatserver.hot.redis.pipelined_connection import Reply
from chatserver.hot.redis.scripts import Value


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
            return Unavailable("redis: the write is not on disk yet and may be lost")
        if replicas < self.replicas:
            have = f"{replicas} of {self.replicas} replicas have the write"
            return Unavailable(f"redis: {have}; it may be lost")
        return reply
