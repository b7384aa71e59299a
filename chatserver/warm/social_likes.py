"""Who likes a post, and how many, in table `social`; see `chatserver.warm.social`.

A like is an edge, written at once, in one transaction with a link in the user's own partition of
`directory`, ``u#<user>`` / ``liked#<ulid>#<author>``: what he likes stands under posts of others,
and goes when he is erased. The count is not written with it: a post that thousands like in a second
would have one item written thousands of times. The like goes into a queue (`chatserver.hot.likes`),
and `workers.counters` adds many at once.

`batch` of the count is the newest entry of the queue that is in `n`: adding is conditional on its
being older than all that is added, so a worker that died after the write and another one that does
it again count once. Entries have a fixed width, and so sort as text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Final, Literal, NamedTuple

from chatserver.config import Warm
from chatserver.domain.social import Edge, Line, PostId
from chatserver.errors import ChatError
from chatserver.warm import social
from chatserver.warm.batches import get_items
from chatserver.warm.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.paging import Page, Span, Token, read_page
from chatserver.warm.records import row_key, user_key
from chatserver.warm.social import LIKED_PREFIX, SocialTable
from chatserver.warm.tables import SOCIAL
from chatserver.warm.tables import SocialField as Field

REMOVALS_IN_FLIGHT_MAX: Final = 8


class Fold(NamedTuple):
    """What adding came to: it is counted, partly or wholly was already (`upto`), or no post."""

    outcome: Literal["counted", "known", "gone"]
    upto: str = ""


class Tally(NamedTuple):
    """A count as it is stored."""

    n: int
    batch: str


class SocialLikes:
    """Reads and writes likes and their counts."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._table = SocialTable(client, settings)

    async def like(self, user: str, line: Line, now_ms: int) -> bool:
        """Let a user like a post; False if he does already.

        Guarantees:
            Whole or not at all; a repeat changes nothing. Cost: a transaction of two items, which
            nobody else writes.
        """
        edge = self._edge(user, line.post) | {Field.AT: {"N": str(now_ms)}}
        link = {"TableName": self._table.directory, "Item": _link(user, line)}
        try:
            await self._table.transact([self._table.put(edge), {"Put": link}])
        except ConditionFailed:
            return False
        return True

    async def unlike(self, user: str, line: Line) -> bool:
        """Let a user no longer like a post; False if he did not. As `like`."""
        link = {"TableName": self._table.directory, "Key": _link(user, line)}
        actions = [self._table.delete(self._edge(user, line.post)), {"Delete": link}]
        try:
            await self._table.transact(actions)
        except ConditionFailed:
            return False
        return True

    async def find_liked(self, user: str, posts: Collection[PostId]) -> set[PostId]:
        """Return those of some posts that a user likes. One call for up to 100."""
        keys = [self._edge(user, post) for post in sorted(set(posts))]
        items = await get_items(self._table.client, self._table.name, keys)
        return {PostId(item[Field.PK]["S"].split("#")[1]) for item in items}

    async def list_likes(self, post: PostId, start: Token | None, limit: int) -> Page[Edge]:
        """Return a page of those who like a post, by id. Eventually consistent, one Query."""
        span = Span(SOCIAL, social.likelist_key(post))

        async def load(rows: list[Item]) -> Sequence[Edge]:
            return [social.decode_like(row) for row in rows]

        query = span.query(self._table.settings)
        return await read_page(self._table.client, span, query, load, limit=limit, start=start)

    async def get_counts(self, posts: Collection[PostId]) -> dict[PostId, int]:
        """Return how many like each of some posts, as counted by now."""
        keys = [_count_key(post) for post in sorted(set(posts))]
        items = await get_items(self._table.client, self._table.name, keys)
        found = {PostId(item[Field.PK]["S"].split("#")[1]): _tally_of(item).n for item in items}
        # An unlike may be counted before its like: both were on their way.
        return {post: max(0, found.get(post, 0)) for post in posts}

    # counting

    async def fold(self, post: PostId, change: int, first: str, last: str) -> Fold:
        """Add what the entries `first` to `last` of the queue come to.

        Guarantees:
            Idempotent: what is in the count already is not added.
            Cost: one write of one item.
        """
        request = {
            "TableName": self._table.name,
            "Key": _count_key(post),
            "UpdateExpression": "ADD #n :change SET #batch = :last",
            "ConditionExpression": (
                "attribute_exists(#n) AND (attribute_not_exists(#batch) OR #batch < :first)"
            ),
            "ExpressionAttributeNames": {"#n": Field.N, "#batch": Field.BATCH},
            "ExpressionAttributeValues": {
                ":change": {"N": str(change)},
                ":first": {"S": first},
                ":last": {"S": last},
            },
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        try:
            await self._table.client.call("update_item", request)
        except ConditionFailed as exc:
            stored = exc.stored[0]
            return Fold("gone") if stored is None else Fold("known", _tally_of(stored).batch)
        return Fold("counted")

    async def find_tally(self, post: PostId) -> Tally | None:
        """Return the count of a post as it is stored. Consistent."""
        item = await self._table.find(social.likecount_key(post), social.COUNT)
        return None if item is None else _tally_of(item)

    async def count_likes(self, post: PostId) -> int:
        """Return how many edges there are. Consistent; reads all of them."""
        return await self._table.count_rows(social.likelist_key(post))

    async def set_count(self, post: PostId, n: int, seen: Tally) -> bool:
        """Put a count right that is as it was `seen`; False if it has changed since."""
        values = {":n": {"N": str(n)}, ":seen": {"N": str(seen.n)}}
        if seen.batch:
            values[":batch"] = {"S": seen.batch}
        request = {
            "TableName": self._table.name,
            "Key": _count_key(post),
            "UpdateExpression": "SET #n = :n",
            "ConditionExpression": (
                "#n = :seen AND #batch = :batch"
                if seen.batch
                else "#n = :seen AND attribute_not_exists(#batch)"
            ),
            "ExpressionAttributeNames": {"#n": Field.N, "#batch": Field.BATCH},
            "ExpressionAttributeValues": values,
        }
        try:
            await self._table.client.call("update_item", request)
        except ConditionFailed:
            return False
        return True

    async def remove_some(self, line: Line, limit: int) -> int:
        """Remove up to `limit` likes of a post that is gone; return how many there were.

        Those who like it lose their links, too. Fewer than `limit`: there are no more.
        """
        span = Span(SOCIAL, social.likelist_key(line.post))
        request = {**span.query(self._table.settings), "ConsistentRead": True, "Limit": limit}
        rows = (await self._table.client.call("query", request))["Items"]
        slots = asyncio.Semaphore(REMOVALS_IN_FLIGHT_MAX)

        async def remove(user: str) -> None:
            async with slots:
                await self.unlike(user, line)

        try:
            async with asyncio.TaskGroup() as group:
                for row in rows:
                    group.create_task(remove(social.decode_like(row).user), name="unlike")
        except* ChatError as failures:
            raise failures.exceptions[0] from failures
        return len(rows)

    def _edge(self, user: str, post: PostId) -> Item:
        return social.row_key(social.likelist_key(post), social.user_key(user))


def parse_link(name: str) -> Line:
    """Return the post that a link leads to, from the end of its sort key."""
    post, _, author = name.partition("#")
    return Line(PostId(post), author)


def _link(user: str, line: Line) -> Item:
    return row_key(user_key(user), f"{LIKED_PREFIX}{line.post}#{line.author}")


def _count_key(post: PostId) -> Item:
    return social.row_key(social.likecount_key(post), social.COUNT)


def _tally_of(item: Item) -> Tally:
    return Tally(int(item[Field.N]["N"]), item.get(Field.BATCH, {"S": ""})["S"])
