"""Follow edges in the `social` table; see `chatserver.features.social.warm.social_items`.

A follow edge is two items, one per user, written in one transaction. The transaction requires that
the edge does not exist and that neither user blocks the other (items in `directory`). A retry
therefore changes nothing. After a block has removed the existing edges, no new edge can appear.

No two edges share an item, so concurrent follows of one user do not conflict. The counts are
updated later, through a queue; see `chatserver.features.social.warm.counts`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence

from chatserver.errors import Forbidden, NotFound
from chatserver.features.social.model import GraphEdge
from chatserver.features.social.warm import social_items as social
from chatserver.features.social.warm.social_items import SocialTable
from chatserver.warm.chats.moderation import BLOCK
from chatserver.warm.dynamo.client import Action, ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.conditions import Attr
from chatserver.warm.dynamo.paging import QueryPage, Span, Token, read_page
from chatserver.warm.dynamo.table import Key, try_write
from chatserver.warm.schema.tables import SOCIAL, DirectoryField
from chatserver.warm.schema.tables import SocialField as Field

# Positions of actions in the transaction of `follow`, to find out which condition failed.
_EDGE, _BLOCKS, _COUNTS = 0, slice(2, 4), 5


class FollowEdges:
    """Reads and writes follow edges."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = SocialTable(client)

    async def follow(
        self, user: str, other: str, now_ms: int, *, with_counts: bool = False
    ) -> bool:
        """Make `user` follow `other`; return False if the edge already exists.

        `with_counts` also creates the count item of `user` if it does not exist. Without
        `with_counts`, the counters worker creates it later, which costs a failed write and another
        transaction.

        Guarantees:
            Atomic, even under concurrency. A retry changes nothing.
            Cost: one transaction, 8 write units; 4 more if it creates the count item.

        Raises:
            Forbidden: one of the two blocks the other.
            NotFound: `with_counts` is set, and `user` no longer has a profile.
            Unavailable: the follow may or may not have been written.
        """
        table, since = self._table, {Field.SINCE: now_ms}
        follower, following = _edge_keys(user, other)
        actions = [
            table.create_action(follower, since),
            table.create_action(following, since),
            self._build_block_check(user, other),
            self._build_block_check(other, user),
        ]
        if with_counts:
            counts = social.COUNTS.key(user=user)
            actions += [table.check_info_action(user), table.create_action(counts)]
        try:
            await table.transact(actions)
        except ConditionFailed as exc:
            if exc.stored[_EDGE] is not None:
                return False
            if any(exc.stored[_BLOCKS]):
                raise Forbidden(f"{other}: you cannot interact with this user") from None
            if not with_counts:
                raise
            if exc.stored[_COUNTS] is None:
                raise NotFound("user: does not exist") from None
            return await self.follow(user, other, now_ms)
        return True

    async def unfollow(self, user: str, other: str) -> bool:
        """Make `user` unfollow `other`; return False if there was no edge. Atomic."""
        actions = [self._table.remove_action(key) for key in _edge_keys(user, other)]
        return await try_write(self._table.transact(actions))

    async def find_edge(self, user: str, other: str) -> GraphEdge | None:
        """Return the edge from `user`, the follower, to `other`. Strongly consistent."""
        item = await self._table.find((social.following_key(user), social.user_key(other)))
        return None if item is None else social.decode_edge(item)

    async def find_followed(self, user: str, others: Collection[str]) -> set[str]:
        """Return the `others` that `user` follows. Strongly consistent; one call per 100 users."""
        return await self._find_edges(social.following_key(user), others)

    async def find_followers(self, user: str, others: Collection[str]) -> set[str]:
        """Return which of `others` follow `user`. Strongly consistent; one call per 100 users."""
        return await self._find_edges(social.follower_key(user), others)

    async def _find_edges(self, partition: str, others: Collection[str]) -> set[str]:
        keys: list[Key] = [(partition, social.user_key(other)) for other in sorted(set(others))]
        return {social.decode_edge(item).user for item in await self._table.get_items(keys)}

    async def list_followers(
        self, user: str, start: Token | None, limit: int
    ) -> QueryPage[GraphEdge]:
        """Return a page of a user's followers, sorted by id. Eventually consistent, one Query."""
        return await self._list(social.follower_key(user), start, limit)

    async def list_following(
        self, user: str, start: Token | None, limit: int
    ) -> QueryPage[GraphEdge]:
        """Return a page of users whom `user` follows, by id. Eventually consistent, one Query."""
        return await self._list(social.following_key(user), start, limit)

    async def _list(self, partition: str, start: Token | None, limit: int) -> QueryPage[GraphEdge]:
        span = Span(SOCIAL, partition)

        async def load(rows: list[Item]) -> Sequence[GraphEdge]:
            return [social.decode_edge(row) for row in rows]

        query = self._table.build_query(span, is_consistent=False)
        return await read_page(self._table.client, span, query, load, limit=limit, start=start)

    async def list_followers_after(self, user: str, after: str | None, limit: int) -> list[str]:
        """Return up to `limit` followers after a given id, sorted by id.

        Guarantees:
            Consistent: a user who remains a follower while a caller reads all pages appears on one
            of them, whatever else changes. A page with fewer than `limit` users is the last one.
        """
        partition = social.follower_key(user)
        start = None if after is None else social.row_key(partition, social.user_key(after))
        # A Query ends early only after 1 MB, which is thousands of edges.
        rows = await self._table.query(Span(SOCIAL, partition), limit=limit, start=start)
        return [social.decode_edge(row).user for row in rows]

    async def iter_edges(self, user: str, *, is_follower: bool) -> AsyncIterator[list[GraphEdge]]:
        """Yield all followers, or all followed users, page by page. Strongly consistent."""
        partition = social.follower_key(user) if is_follower else social.following_key(user)
        async for rows in self._table.iter_query(Span(SOCIAL, partition)):
            yield [social.decode_edge(row) for row in rows]

    def _build_block_check(self, user: str, other: str) -> Action:
        is_absent = Attr(DirectoryField.PK).is_absent
        key = BLOCK.key(owner=user, user=other)
        return self._table.directory.check_action(key, if_=is_absent, keeps_stored=True)


def _edge_keys(user: str, other: str) -> tuple[Key, Key]:
    return (
        (social.follower_key(other), social.user_key(user)),
        (social.following_key(user), social.user_key(other)),
    )
