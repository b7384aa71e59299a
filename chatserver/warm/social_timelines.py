"""Timelines, in table `social`; see `chatserver.warm.social`.

A line names a post and its author; what the post says is read where it is, so a line never goes out
of date. Lines end by themselves (`ttl`); TTL removes them late, so reads filter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from chatserver.config import Warm
from chatserver.domain.social import Line
from chatserver.errors import ChatError
from chatserver.warm import social
from chatserver.warm.batches import WRITES_MAX, put_items
from chatserver.warm.client import DynamoClient, Item
from chatserver.warm.paging import Span
from chatserver.warm.social import SocialTable
from chatserver.warm.tables import SOCIAL
from chatserver.warm.tables import SocialField as Field

LINES_REMOVED_MAX: Final = 500


class SocialTimelines:
    """Reads and writes lines."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._table = SocialTable(client, settings)

    async def put_lines(
        self, users: Sequence[str], line: Line, ttl: int, in_flight_max: int = 8
    ) -> None:
        """Write a line into the timelines of some users; `ttl`: when it ends (s since 1970).

        Guarantees:
            Idempotent. All are written when it returns.
            Cost: one write unit a user.

        Raises:
            Unavailable: some may not be written.
        """
        slots = asyncio.Semaphore(in_flight_max)

        async def put(some: Sequence[str]) -> None:
            async with slots:
                rows = [_encode(user, line, ttl) for user in some]
                await put_items(self._table.client, self._table.name, rows)

        try:
            async with asyncio.TaskGroup() as group:
                for at in range(0, len(users), WRITES_MAX):
                    group.create_task(put(users[at : at + WRITES_MAX]), name="lines")
        except* ChatError as failures:
            raise failures.exceptions[0] from failures

    async def list_lines(
        self, user: str, before: Line | None, now_s: float, limit: int
    ) -> tuple[list[Line], bool]:
        """Return up to `limit` lines of a timeline from below `before`, newest first.

        The second: there may be more. Eventually consistent, one Query.
        """
        # '~' is above all that a key may hold.
        high = "p#~" if before is None else social.line_key(before)
        span = Span(SOCIAL, social.timeline_key(user), between=("p#", high))
        query: dict[str, Any] = span.query(self._table.settings)
        query |= {"ScanIndexForward": False, "Limit": limit + 1}
        answer = await self._table.client.call("query", query)
        rows = [row for row in answer["Items"] if int(row[Field.TTL]["N"]) > now_s]
        lines = [line for line in map(social.decode_line, rows) if line != before]
        return lines[:limit], "LastEvaluatedKey" in answer or len(lines) > limit

    async def remove_lines(self, user: str, lines: Sequence[Line]) -> None:
        """Remove lines whose posts are gone. Idempotent."""
        for line in lines:
            key = social.row_key(social.timeline_key(user), social.line_key(line))
            await self._table.client.call(
                "delete_item", {"TableName": self._table.name, "Key": key}
            )

    async def remove_all(self, user: str) -> int:
        """Remove a user's timeline; return how many lines there were. Idempotent."""
        span = Span(SOCIAL, social.timeline_key(user))
        request = {**span.query(self._table.settings), "ConsistentRead": True}
        request["Limit"] = LINES_REMOVED_MAX
        removed = 0
        while True:
            rows = (await self._table.client.call("query", request))["Items"]
            await self.remove_lines(user, [social.decode_line(row) for row in rows])
            removed += len(rows)
            if len(rows) < LINES_REMOVED_MAX:
                return removed


def _encode(user: str, line: Line, ttl: int) -> Item:
    key = social.row_key(social.timeline_key(user), social.line_key(line))
    return key | {Field.TTL: {"N": str(ttl)}}
