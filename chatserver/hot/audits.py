"""What the continuous audit did last, for who looks at the admin page; the log has all of it.

Data, for good, as it is little:

    {audit}:rounds    hash    partition → JSON of `Round`: the last round over its chats
    {audit}:findings  stream  ``f`` → JSON of `Found`; about the newest `FINDINGS_MAX`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from chatserver.hot.client import HotClient

FINDINGS_MAX: Final = 200


class Round(msgspec.Struct, frozen=True):
    """A round over the chats of a partition. `failed`: chats that could not be looked at."""

    partition: int
    began_ms: int
    ended_ms: int
    chats: int
    entries: int
    unverified: int
    failed: int
    findings: int


class Found(msgspec.Struct, frozen=True):
    """Something wrong, as `chatserver.domain.audits.Finding`, and when it was found."""

    at_ms: int
    kind: str
    chat: str
    first: int
    last: int
    where: str = ""


class AuditNotes:
    """Writes and reads them."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    async def put_round(self, found: Round) -> None:
        """Note how a round went, in the place of the one before.

        Raises:
            Unavailable: it may be noted, or not.
        """
        key = self._hot.keys.audit_rounds()
        await self._hot.call("HSET", key, str(found.partition), msgspec.json.encode(found))

    async def add_findings(self, findings: Sequence[Found]) -> None:
        """Note what was found; a repeat notes it twice. Raises Unavailable."""
        key = self._hot.keys.audit_findings()
        for start in range(0, len(findings), FINDINGS_MAX):
            calls = [
                ("XADD", key, "MAXLEN", "~", FINDINGS_MAX, "*", "f", msgspec.json.encode(each))
                for each in findings[start : start + FINDINGS_MAX]
            ]
            await self._hot.transaction(*calls)

    async def list_rounds(self) -> list[Round]:
        """Return the last round of each partition that had one. Raises Unavailable."""
        flat = await self._hot.call("HGETALL", self._hot.keys.audit_rounds())
        found = [msgspec.json.decode(body, type=Round) for body in flat[1::2]]
        return sorted(found, key=lambda each: each.partition)

    async def list_findings(self, limit: int) -> list[Found]:
        """Return what was found last, the newest first. Raises Unavailable."""
        key = self._hot.keys.audit_findings()
        reply = await self._hot.call("XREVRANGE", key, "+", "-", "COUNT", limit)
        return [msgspec.json.decode(fields[1], type=Found) for _, fields in reply]
