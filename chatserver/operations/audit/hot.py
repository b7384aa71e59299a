"""Latest results of the continuous audit, in Redis for the admin page.

The worker's log has all results.

Data (small, so it does not expire):

    {audit}:rounds    hash    partition → JSON of `Round`: the last audit of its chats
    {audit}:findings  stream  ``f`` → JSON of `DatedFinding`; about the newest `FINDINGS_MAX`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from chatserver.hot.redis.client import HotClient

FINDINGS_MAX: Final = 200


class Round(msgspec.Struct, frozen=True):
    """One audit of a partition's chats. `failed` counts chats that could not be checked."""

    partition: int
    began_ms: int
    ended_ms: int
    chats: int
    entries: int
    unverified: int
    failed: int
    findings: int


class DatedFinding(msgspec.Struct, frozen=True):
    """A `chatserver.operations.audit.model.Finding`, and when it was found."""

    at_ms: int
    kind: str
    chat: str
    first: int
    last: int
    where: str = ""


class AuditResults:
    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    async def put_round(self, audit_round: Round) -> None:
        """Store the result of an audit; it replaces the partition's previous result.

        Raises:
            Unavailable: the write may or may not have happened.
        """
        key = self._hot.keys.audit_rounds()
        await self._hot.call(
            "HSET", key, str(audit_round.partition), msgspec.json.encode(audit_round)
        )

    async def add_findings(self, findings: Sequence[DatedFinding]) -> None:
        """Append findings; a repeated call appends them again. Raises Unavailable."""
        key = self._hot.keys.audit_findings()
        for start in range(0, len(findings), FINDINGS_MAX):
            calls = [
                ("XADD", key, "MAXLEN", "~", FINDINGS_MAX, "*", "f", msgspec.json.encode(finding))
                for finding in findings[start : start + FINDINGS_MAX]
            ]
            await self._hot.transaction(*calls)

    async def list_rounds(self) -> list[Round]:
        """Return the result of the last audit of each partition. Raises Unavailable."""
        flat = await self._hot.call("HGETALL", self._hot.keys.audit_rounds())
        rounds = [msgspec.json.decode(body, type=Round) for body in flat[1::2]]
        return sorted(rounds, key=lambda round_: round_.partition)

    async def list_findings(self, limit: int) -> list[DatedFinding]:
        """Return the latest findings, newest first. Raises Unavailable."""
        key = self._hot.keys.audit_findings()
        reply = await self._hot.call("XREVRANGE", key, "+", "-", "COUNT", limit)
        return [msgspec.json.decode(fields[1], type=DatedFinding) for _, fields in reply]
