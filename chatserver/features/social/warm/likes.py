"""Likes and their counts in the `social` table; see `chatserver.features.social.warm.social_items`.

A like is an item in a partition of its post. The same transaction writes a link in the user's own
partition of `directory`, ``u#<user>`` / ``liked#<ulid>#<author>``, through which an erasure of the
user finds the like. The like count is updated later (`chatserver.features.social.warm.counts`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from chatserver.features.social.model import GraphEdge, PostId, PostRef
from chatserver.features.social.warm import social_items as social
from chatserver.features.social.warm.counts import CountResult, add_changes
from chatserver.features.social.warm.social_items import LIKED_PREFIX, SocialTable
from chatserver.task_groups import map_concurrently
from chatserver.warm.chats.directory_items import user_key
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.item_attributes import get_number
from chatserver.warm.dynamo.paging import QueryPage, Span, Token, read_page
from chatserver.warm.dynamo.table import Key, try_write
from chatserver.warm.schema.tables import SOCIAL
from chatserver.warm.schema.tables import SocialField as Field

REMOVALS_IN_FLIGHT_MAX: Final = 8


class SocialLikes:
    """Reads and writes likes and their counts."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = SocialTable(client)

    async def like(self, user: str, post_ref: PostRef, now_ms: int) -> bool:
        """Add a user's like to a post; return False if it already exists.

        Guarantees:
            Atomic; a retry changes nothing. Cost: a transaction of two items that no other user
            writes.
        """
        actions = [
            self._table.create_action(_edge_key(user, post_ref.post), {Field.AT: now_ms}),
            self._table.directory.put_action(_link(user, post_ref)),
        ]
        return await try_write(self._table.transact(actions))

    async def unlike(self, user: str, post_ref: PostRef) -> bool:
        """Remove a user's like from a post; return False if there was none. Atomic."""
        actions = [
            self._table.remove_action(_edge_key(user, post_ref.post)),
            self._table.directory.delete_action(_link(user, post_ref)),
        ]
        return await try_write(self._table.transact(actions))

    async def find_liked(self, user: str, posts: Collection[PostId]) -> set[PostId]:
        """Return which of `posts` a user likes. Cost: one call per 100 posts."""
        items = await self._table.get_items([_edge_key(user, post) for post in sorted(set(posts))])
        return {PostId(item[Field.PK]["S"].split("#")[1]) for item in items}

    async def list_likes(
        self, post: PostId, start: Token | None, limit: int
    ) -> QueryPage[GraphEdge]:
        """Return a page of a post's likes, sorted by user. Eventually consistent, one Query."""
        span = Span(SOCIAL, social.likelist_key(post))

        async def load(rows: list[Item]) -> Sequence[GraphEdge]:
            return [social.decode_like(row) for row in rows]

        query = self._table.build_query(span, is_consistent=False)
        return await read_page(self._table.client, span, query, load, limit=limit, start=start)

    async def get_counts(self, posts: Collection[PostId]) -> dict[PostId, int]:
        items = await self._table.get_items([_count_key(post) for post in sorted(set(posts))])
        counts = {
            PostId(item[Field.PK]["S"].split("#")[1]): get_number(item, Field.N) for item in items
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

    async def remove_some(self, post_ref: PostRef, limit: int) -> int:
        """Remove up to `limit` likes of a deleted post, and the users' links to the likes.

        Return the number of removed likes. If it is less than `limit`, none are left.
        """
        span = Span(SOCIAL, social.likelist_key(post_ref.post))
        rows = await self._table.query(span, limit=limit)
        await map_concurrently(
            lambda row: self.unlike(social.decode_like(row).user, post_ref),
            rows,
            in_flight_max=REMOVALS_IN_FLIGHT_MAX,
            name="unlike",
        )
        return len(rows)


def parse_link(name: str) -> PostRef:
    """Return the liked post, given the sort key of a user's link without `LIKED_PREFIX`."""
    post, _, author = name.partition("#")
    return PostRef(PostId(post), author)


def _edge_key(user: str, post: PostId) -> Key:
    return social.likelist_key(post), social.user_key(user)


def _link(user: str, post_ref: PostRef) -> Key:
    return user_key(user), f"{LIKED_PREFIX}{post_ref.post}#{post_ref.author}"


def _count_key(post: PostId) -> Key:
    return social.likecount_key(post), social.COUNT
