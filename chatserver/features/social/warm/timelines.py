"""Timelines in the `social` table; see `chatserver.features.social.warm.social_items`.

An entry refers to a post and its author, and does not contain the post's content. Entries expire
(`ttl`). DynamoDB deletes expired items with a delay, so reads filter them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chatserver.features.social.model import PostRef
from chatserver.features.social.warm import social_items as social
from chatserver.features.social.warm.social_items import SocialTable
from chatserver.task_groups import map_concurrently
from chatserver.warm.dynamo.batches import WRITES_MAX, put_items
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.schema.tables import SOCIAL
from chatserver.warm.schema.tables import SocialField as Field

ENTRIES_REMOVED_MAX: Final = 500


class SocialTimelines:
    """Reads and writes timeline entries."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = SocialTable(client)

    async def put_entries(
        self, users: Sequence[str], post_ref: PostRef, ttl: int, in_flight_max: int = 8
    ) -> None:
        """Write an entry to the timelines of several users; `ttl` is its expiry (s since 1970).

        Guarantees:
            Idempotent. All entries have been written when this returns.
            Cost: one write unit per user.

        Raises:
            Unavailable: some entries may be missing.
        """

        async def put(offset: int) -> None:
            rows = [_encode(user, post_ref, ttl) for user in users[offset : offset + WRITES_MAX]]
            await put_items(self._table.client, self._table.name, rows)

        await map_concurrently(
            put, range(0, len(users), WRITES_MAX), in_flight_max=in_flight_max, name="timelines"
        )

    async def put_user_entries(self, user: str, entries: Sequence[tuple[PostRef, int]]) -> None:
        """Write entries, each with its expiry (s since 1970), to one timeline. Idempotent.

        Raises:
            Unavailable: some entries may be missing.
        """
        rows = [_encode(user, post_ref, ttl) for post_ref, ttl in entries]
        for start in range(0, len(rows), WRITES_MAX):
            await put_items(self._table.client, self._table.name, rows[start : start + WRITES_MAX])

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
        span = Span(SOCIAL, social.timeline_key(user))
        removed = 0
        while True:
            rows = await self._table.query(span, limit=ENTRIES_REMOVED_MAX)
            await self.remove_entries(user, [social.decode_entry(row) for row in rows])
            removed += len(rows)
            if len(rows) < ENTRIES_REMOVED_MAX:
                return removed


def _encode(user: str, post_ref: PostRef, ttl: int) -> Item:
    key = social.row_key(social.timeline_key(user), social.entry_key(post_ref))
    return key | {Field.TTL: {"N": str(ttl)}}
