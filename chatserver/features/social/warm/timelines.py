"""Timelines in the `social` table; see `chatserver.features.social.warm.social_items`.

An entry refers to a post and its author, and does not contain the post's content. Entries expire
(`ttl`). DynamoDB deletes expired items with a delay, so reads filter them.
"""

from __future__ import annotations

from collections.abc import Sequence

from chatserver.features.social.model import PostRef
from chatserver.features.social.warm import social_items as social
from chatserver.features.social.warm.social_items import SocialTable
from chatserver.task_groups import map_concurrently
from chatserver.warm.dynamo.batches import WRITES_MAX, put_items
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.schema.tables import SOCIAL
from chatserver.warm.schema.tables import SocialField as Field


class SocialTimelines:
    """Reads and writes timeline entries."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = SocialTable(client)

    async def put_entries(
        self, entries: Sequence[tuple[str, PostRef, int]], in_flight_max: int = 1
    ) -> None:
        """Write entries to timelines: the user, the post, and the expiry (s since 1970) of each.

        Guarantees:
            Idempotent. All entries have been written when this returns.
            Cost: one write unit per entry.

        Raises:
            Unavailable: some entries may be missing.
        """

        async def put(offset: int) -> None:
            rows = [_encode(*entry) for entry in entries[offset : offset + WRITES_MAX]]
            await put_items(self._table.client, self._table.name, rows)

        await map_concurrently(
            put, range(0, len(entries), WRITES_MAX), in_flight_max=in_flight_max, name="timelines"
        )

    async def list_entries(
        self, user: str, before: PostRef | None, now_s: float, limit: int
    ) -> tuple[list[PostRef], bool]:
        """Return `(entries, is_more)`: up to `limit` entries older than `before`, newest first.

        `is_more`: older entries may follow. Eventually consistent, one Query.
        """
        # '~' sorts after every character of a key.
        high = "p#~" if before is None else social.entry_key(before)
        span = Span(SOCIAL, social.timeline_key(user), between=("p#", high))
        query = self._table.build_query(
            span, limit=limit + 1, is_newest_first=True, is_consistent=False
        )
        response = await self._table.client.call("query", query)
        rows = [row for row in response["Items"] if int(row[Field.TTL]["N"]) > now_s]
        entries = [post_ref for post_ref in map(social.decode_entry, rows) if post_ref != before]
        return entries[:limit], "LastEvaluatedKey" in response or len(entries) > limit

    async def remove_entries(self, user: str, entries: Sequence[PostRef]) -> None:
        """Remove entries of deleted posts. Idempotent."""
        for post_ref in entries:
            await self._table.delete((social.timeline_key(user), social.entry_key(post_ref)))

    async def remove_all(self, user: str) -> int:
        """Remove a user's timeline; return how many entries there were. Idempotent."""
        removed = 0
        async for rows in self._table.iter_query(Span(SOCIAL, social.timeline_key(user))):
            await self.remove_entries(user, [social.decode_entry(row) for row in rows])
            removed += len(rows)
        return removed


def _encode(user: str, post_ref: PostRef, ttl: int) -> Item:
    key = social.row_key(social.timeline_key(user), social.entry_key(post_ref))
    return key | {Field.TTL: {"N": str(ttl)}}
