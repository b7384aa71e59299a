"""Likes and their counts in the `social` table; see `chatserver.features.social.warm.social_items`.

A like is an item in a partition of its post. The same transaction writes a link in the user's own
partition of `directory`, ``u#<user>`` / ``liked#<ulid>#<author>``, through which an erasure of the
user finds the like. The like count is updated later (`chatserver.features.social.warm.counts`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from chatserver.config import Warm
from chatserver.features.social.model import GraphEdge, PostId, PostRef
from chatserver.features.social.warm import social_items as social
from chatserver.features.social.warm.counts import CountResult, add_changes, get_batch
from chatserver.features.social.warm.social_items import LIKED_PREFIX, SocialTable
from chatserver.task_groups import map_concurrently
from chatserver.warm.chats.directory_items import row_key, user_key
from chatserver.warm.dynamo.batches import get_items
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.items import write_conditionally
from chatserver.warm.dynamo.paging import Page, Span, Token, read_page
from chatserver.warm.schema.tables import SOCIAL
from chatserver.warm.schema.tables import SocialField as Field

REMOVALS_IN_FLIGHT_MAX: Final = 8


class StoredCount(NamedTuple):
    """A stored like count. `batch` is the newest queue entry that it includes."""

    n: int
    batch: str


class SocialLikes:
    """Reads and writes likes and their counts."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._table = SocialTable(client, settings)

    async def like(self, user: str, post_ref: PostRef, now_ms: int) -> bool:
        """Add a user's like to a post; return False if it already exists.

        Guarantees:
            Atomic; a retry changes nothing. Cost: a transaction of two items that no other user
            writes.
        """
        edge = self._make_edge_key(user, post_ref.post) | {Field.AT: {"N": str(now_ms)}}
        link = {"TableName": self._table.directory, "Item": _link(user, post_ref)}
        try:
            await self._table.transact([self._table.put(edge), {"Put": link}])
        except ConditionFailed:
            return False
        return True

    async def unlike(self, user: str, post_ref: PostRef) -> bool:
        """Remove a user's like from a post; return False if there was none. Atomic."""
        link = {"TableName": self._table.directory, "Key": _link(user, post_ref)}
        actions = [self._table.delete(self._make_edge_key(user, post_ref.post)), {"Delete": link}]
        try:
            await self._table.transact(actions)
        except ConditionFailed:
            return False
        return True

    async def find_liked(self, user: str, posts: Collection[PostId]) -> set[PostId]:
        """Return which of `posts` a user likes. Cost: one call per 100 posts."""
        keys = [self._make_edge_key(user, post) for post in sorted(set(posts))]
        items = await get_items(self._table.client, self._table.name, keys)
        return {PostId(item[Field.PK]["S"].split("#")[1]) for item in items}

    async def list_likes(self, post: PostId, start: Token | None, limit: int) -> Page[GraphEdge]:
        """Return a page of a post's likes, sorted by user. Eventually consistent, one Query."""
        span = Span(SOCIAL, social.likelist_key(post))

        async def load(rows: list[Item]) -> Sequence[GraphEdge]:
            return [social.decode_like(row) for row in rows]

        query = span.query(self._table.settings)
        return await read_page(self._table.client, span, query, load, limit=limit, start=start)

    async def get_counts(self, posts: Collection[PostId]) -> dict[PostId, int]:
        keys = [_count_key(post) for post in sorted(set(posts))]
        items = await get_items(self._table.client, self._table.name, keys)
        counts = {
            PostId(item[Field.PK]["S"].split("#")[1]): _decode_count(item).n for item in items
        }
        # If a like and its removal are concurrent, the removal may be queued and counted first. The
        # count may then be negative until the like is counted.
        return {post: max(0, counts.get(post, 0)) for post in posts}

    # Counting

    async def add_likes(self, post: PostId, change: int, first: str, last: str) -> CountResult:
        """Add to a post's like count the sum of the queue entries from `first` to `last`.

        For guarantees, see `add_changes`.
        """
        changes = {Field.N: change}
        return await add_changes(self._table, _count_key(post), changes, first, last)

    async def find_stored_count(self, post: PostId) -> StoredCount | None:
        """Return the stored like count of a post. Strongly consistent."""
        item = await self._table.find(social.likecount_key(post), social.COUNT)
        return None if item is None else _decode_count(item)

    async def count_likes(self, post: PostId) -> int:
        """Count a post's likes. Strongly consistent; reads all of them."""
        return await self._table.count_rows(social.likelist_key(post))

    async def set_count(self, post: PostId, n: int, stored: StoredCount) -> bool:
        """Set a post's like count to `n`; return False if the count is no longer `stored`."""
        values = {":n": {"N": str(n)}, ":seen": {"N": str(stored.n)}}
        if stored.batch:
            values[":batch"] = {"S": stored.batch}
        request = {
            "TableName": self._table.name,
            "Key": _count_key(post),
            "UpdateExpression": "SET #n = :n",
            "ConditionExpression": (
                "#n = :seen AND #batch = :batch"
                if stored.batch
                else "#n = :seen AND attribute_not_exists(#batch)"
            ),
            "ExpressionAttributeNames": {"#n": Field.N, "#batch": Field.BATCH},
            "ExpressionAttributeValues": values,
        }
        return await write_conditionally(self._table.client, "update_item", request)

    async def remove_some(self, post_ref: PostRef, limit: int) -> int:
        """Remove up to `limit` likes of a deleted post, and the users' links to the likes.

        Return the number of removed likes. If it is less than `limit`, none are left.
        """
        span = Span(SOCIAL, social.likelist_key(post_ref.post))
        request = {**span.query(self._table.settings), "ConsistentRead": True, "Limit": limit}
        rows = (await self._table.client.call("query", request))["Items"]
        await map_concurrently(
            lambda row: self.unlike(social.decode_like(row).user, post_ref),
            rows,
            in_flight_max=REMOVALS_IN_FLIGHT_MAX,
            name="unlike",
        )
        return len(rows)

    def _make_edge_key(self, user: str, post: PostId) -> Item:
        return social.row_key(social.likelist_key(post), social.user_key(user))


def parse_link(name: str) -> PostRef:
    """Return the liked post, given the sort key of a user's link without `LIKED_PREFIX`."""
    post, _, author = name.partition("#")
    return PostRef(PostId(post), author)


def _link(user: str, post_ref: PostRef) -> Item:
    return row_key(user_key(user), f"{LIKED_PREFIX}{post_ref.post}#{post_ref.author}")


def _count_key(post: PostId) -> Item:
    return social.row_key(social.likecount_key(post), social.COUNT)


def _decode_count(item: Item) -> StoredCount:
    return StoredCount(int(item[Field.N]["N"]), get_batch(item))
