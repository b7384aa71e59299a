"""How often a password may be tried: buckets in Redis, asked for each try.

Data: ``{pN}:limit:<kind>:<subject>``, as of `chatserver.hot.limits`; but not taken in blocks: a
guess that is not counted everywhere at once is a guess too many, and logging in is rare and slow.
"""

from __future__ import annotations

from typing import Literal

from chatserver import config
from chatserver.errors import RateLimited, Unavailable
from chatserver.hot.client import HotClient
from chatserver.hot.scripts import Value, load_script
from chatserver.telemetry import metrics

Kind = Literal["logins", "entries"]


class Tries:
    """The buckets: `logins` of a user name, `entries` of an address."""

    def __init__(self, hot: HotClient, settings: config.Limits) -> None:
        self._hot = hot
        self._rules: dict[Kind, tuple[int, float]] = {
            "logins": (settings.logins_burst, settings.logins_per_s),
            "entries": (settings.entries_burst, settings.entries_per_s),
        }

    async def take(self, kind: Kind, subject: str) -> None:
        """Take one try.

        Raises:
            RateLimited: there is none left for now.
            Unavailable: Redis does not answer, and nobody may guess meanwhile.
        """
        taken, wait_ms = await self._ask(kind, subject, 1)
        if not taken:
            metrics.RATE_LIMITED.labels(kind).inc()
            why = "too many tries: wait a little"
            raise RateLimited(why, retry_after_ms=int(wait_ms))

    async def put_back(self, kind: Kind, subject: str) -> None:
        """Put a try back: it was right. Best effort."""
        try:
            await self._ask(kind, subject, -1)
        except Unavailable:
            return

    async def _ask(self, kind: Kind, subject: str, wanted: int) -> tuple[int, int]:
        burst, rate = self._rules[kind]
        item: dict[str, Value] = {
            "limit": self._hot.keys.limit(kind, subject),
            "burst": burst,
            "rate": repr(rate),
            "wanted": wanted,
        }
        taken, wait_ms = await self._hot.run(load_script("take"), items=[item])
        return int(taken), int(wait_ms)
