"""Who follows whom, in table `social`; see `chatserver.warm.social`.

Following is one transaction that writes four items, both edges and both counts, on the condition
that there is no edge and that neither of the two blocks the other (rows of `directory`, which it
looks at but does not write). So a repeat changes nothing, counts are the numbers of edges at every
moment, and whoever blocks another one finds no edge behind him once he has taken away those that
there were.

Cost: 12 write units to follow (four items and two looks, doubled as all transactions are), 8 to end
it. All who follow one user at once write one count: DynamoDB lets one of them through at a time,
the client tries the others again, and what is still refused after that is `Unavailable`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, Final

from chatserver.config import Warm
from chatserver.domain.social import FOLLOWING_MAX, Edge
from chatserver.errors import Conflict, Forbidden
from chatserver.warm import social
from chatserver.warm.batches import get_items
from chatserver.warm.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.moderation import block_key
from chatserver.warm.paging import Page, Span, Token, read_page
from chatserver.warm.records import row_key, user_key
from chatserver.warm.social import SocialTable
from chatserver.warm.tables import SOCIAL, DirectoryField
from chatserver.warm.tables import SocialField as Field

# Places of what may fail in the transaction of `follow`.
_EDGE, _COUNT, _BLOCKS = 0, 3, slice(4, 6)
FOLLOWERS_READ_MAX: Final = 500  # in one page of `iter_followers`


class SocialGraph:
    """Reads and writes edges."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._table = SocialTable(client, settings)

    async def follow(self, user: str, other: str, now_ms: int) -> bool:
        """Let `user` follow `other`; False if he does already.

        Guarantees:
            Whole or not at all, whoever races. A repeat changes nothing.
            Cost: one transaction, 12 write units.

        Raises:
            Forbidden: one of the two blocks the other.
            Conflict: the user follows as many as he may.
            Unavailable: he may follow, or not.
        """
        table, since = self._table, {Field.SINCE: {"N": str(now_ms)}}
        follower, following = _edge_keys(user, other)
        mine = table.count(user, Field.FOLLOWING, 1)
        mine["Update"] |= {
            "ConditionExpression": "attribute_not_exists(#count) OR #count < :max",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        mine["Update"]["ExpressionAttributeValues"] |= {":max": {"N": str(FOLLOWING_MAX)}}
        actions = [
            table.put(follower | since),
            table.put(following | since),
            table.count(other, Field.FOLLOWERS, 1),
            mine,
            self._unless_blocked(user, other),
            self._unless_blocked(other, user),
        ]
        try:
            await table.transact(actions)
        except ConditionFailed as exc:
            if exc.stored[_EDGE] is not None:
                return False
            if any(exc.stored[_BLOCKS]):
                raise Forbidden(f"{other}: you and this user cannot be brought together") from None
            if exc.stored[_COUNT] is not None:
                raise Conflict(f"following: a user follows at most {FOLLOWING_MAX:,}") from None
            raise
        return True

    async def unfollow(self, user: str, other: str) -> bool:
        """Let `user` no longer follow `other`; False if he did not. As `follow`, 8 write units."""
        table = self._table
        follower, following = _edge_keys(user, other)
        actions = [
            table.delete(follower),
            table.delete(following),
            table.count(other, Field.FOLLOWERS, -1),
            table.count(user, Field.FOLLOWING, -1),
        ]
        try:
            await table.transact(actions)
        except ConditionFailed:
            return False
        return True

    async def part(self, user: str, other: str) -> None:
        """End that either of the two follows the other. Idempotent."""
        await self.unfollow(user, other)
        await self.unfollow(other, user)

    async def find_followed(self, user: str, others: Collection[str]) -> set[str]:
        """Return those of some users whom `user` follows. Consistent; one call for up to 100."""
        rows = [
            social.row_key(social.following_key(user), social.user_key(other))
            for other in sorted(set(others))
        ]
        found = await get_items(self._table.client, self._table.name, rows)
        return {social.decode_edge(item).user for item in found}

    async def find_followers(self, user: str, others: Collection[str]) -> set[str]:
        """Return those of some users who follow `user`. Consistent; one call for up to 100."""
        rows = [
            social.row_key(social.follower_key(user), social.user_key(other))
            for other in sorted(set(others))
        ]
        found = await get_items(self._table.client, self._table.name, rows)
        return {social.decode_edge(item).user for item in found}

    async def list_followers(self, user: str, start: Token | None, limit: int) -> Page[Edge]:
        """Return a page of those who follow a user, by id. Eventually consistent, one Query."""
        return await self._list(social.follower_key(user), start, limit)

    async def list_following(self, user: str, start: Token | None, limit: int) -> Page[Edge]:
        """Return a page of those whom a user follows, by id. Eventually consistent, one Query."""
        return await self._list(social.following_key(user), start, limit)

    async def _list(self, partition: str, start: Token | None, limit: int) -> Page[Edge]:
        span = Span(SOCIAL, partition)

        async def load(rows: list[Item]) -> Sequence[Edge]:
            return [social.decode_edge(row) for row in rows]

        query = span.query(self._table.settings)
        return await read_page(self._table.client, span, query, load, limit=limit, start=start)

    async def list_followers_after(self, user: str, after: str | None, limit: int) -> list[str]:
        """Return up to `limit` followers by id, from behind one of them.

        Guarantees:
            Consistent: who follows from before the first page until after the last is on one of
            them, whoever comes or goes meanwhile. Fewer than `limit`: there are no more.
        """
        return [edge.user for edge in await self._after(social.follower_key(user), after, limit)]

    async def _after(self, partition: str, after: str | None, limit: int) -> list[Edge]:
        span = Span(SOCIAL, partition)
        request: dict[str, Any] = {**span.query(self._table.settings), "ConsistentRead": True}
        place = after
        found: list[Edge] = []
        while len(found) < limit:
            request["Limit"] = limit - len(found)
            if place is not None:
                request["ExclusiveStartKey"] = social.row_key(partition, social.user_key(place))
            answer = await self._table.client.call("query", request)
            found += [social.decode_edge(item) for item in answer["Items"]]
            if "LastEvaluatedKey" not in answer:
                break
            place = social.decode_edge(answer["LastEvaluatedKey"]).user
        return found

    async def iter_edges(self, user: str, *, is_follower: bool) -> AsyncIterator[list[Edge]]:
        """Yield all who follow the user, or all whom he follows, by page. Consistent."""
        key = social.follower_key(user) if is_follower else social.following_key(user)
        after: str | None = None
        while True:
            page = await self._after(key, after, FOLLOWERS_READ_MAX)
            if page:
                yield page
            if len(page) < FOLLOWERS_READ_MAX:
                return
            after = page[-1].user

    def _unless_blocked(self, user: str, other: str) -> dict[str, Any]:
        check = {
            "TableName": self._table.directory,
            "Key": row_key(user_key(user), block_key(other)),
            "ConditionExpression": "attribute_not_exists(#pk)",
            "ExpressionAttributeNames": {"#pk": DirectoryField.PK},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        return {"ConditionCheck": check}


def _edge_keys(user: str, other: str) -> tuple[Item, Item]:
    """Return the keys of both edges of `user` who follows `other`."""
    return (
        social.row_key(social.follower_key(other), social.user_key(user)),
        social.row_key(social.following_key(user), social.user_key(other)),
    )
