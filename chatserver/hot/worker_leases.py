"""Leases: exclusive claims on a partition's work, with a monotonic fencing token.

Data: ``{pN}:lease:<work>`` (hash: owner, token, until_ms), with times from the Redis clock. Scripts
reject a token that is no longer current. Before a write to DynamoDB or S3, the holder checks the
lease; the write's deadline is shorter than the lease.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable

from chatserver.domain.clock import Clock
from chatserver.errors import ChatError
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import load_script


class Lease:
    """A worker's lease on ``<work>`` of a partition."""

    def __init__(
        self, *, hot: HotClient, partition: int, work: str, owner: str, ttl_s: float, clock: Clock
    ) -> None:
        self.partition = partition
        self.token = 0
        self._hot = hot
        self._key = hot.keys.lease(partition, work)
        self._owner = owner
        self._ttl_s = ttl_s
        self._clock = clock
        self._until = 0.0

    def left_s(self) -> float:
        """Return the seconds for which the lease is certainly held; 0 or less if it is not."""
        return self._until - self._clock.monotonic()

    async def claim(self) -> bool:
        """Acquire or renew the lease; return False while another owner holds it.

        Raises:
            Unavailable: Redis does not respond; a held lease stays valid until it expires.
        """
        requested_at = self._clock.monotonic()
        token: int = await self._hot.run(
            load_script("acquire_lease"),
            {"lease": self._key},
            {"owner": self._owner, "ttl_ms": int(self._ttl_s * 1000)},
        )
        if token == 0:
            self._until = 0.0
            return False
        # In Redis, the TTL starts after `requested_at`, so it does not end before `_until`.
        self._until = requested_at + self._ttl_s
        self.token = token
        return True

    async def hold(self) -> bool:
        """Acquire the lease, or renew it after a third of its TTL; False if another owner has it.

        Raises:
            Unavailable: Redis does not respond; a held lease stays valid until it expires.
        """
        return self.left_s() > self._ttl_s * 2 / 3 or await self.claim()

    def mark_lost(self) -> None:
        """Record that the lease is no longer held, because Redis lost it."""
        self._until = 0.0

    @contextlib.asynccontextmanager
    async def release_on_exit(self) -> AsyncIterator[None]:
        """Release the lease on exit if it is held. If that fails, the lease expires."""
        try:
            yield
        finally:
            if self.left_s() > 0:
                with contextlib.suppress(ChatError):
                    await self.release()

    async def release(self) -> None:
        """Release the lease, so that the next owner need not wait for its expiry."""
        self._until = 0.0
        await self._hot.run(
            load_script("release_lease"), {"lease": self._key}, {"owner": self._owner}
        )


async def hold_all(leases: Iterable[Lease]) -> bool:
    """Acquire or renew leases that are only useful together; False if another owner has one.

    Guarantees:
        Owners that name the leases in the same order do not block each other: without a lease, none
        of the later ones is acquired or renewed.

    Raises:
        Unavailable: Redis does not respond.
    """
    for lease in leases:
        if not await lease.hold():
            return False
    return True
