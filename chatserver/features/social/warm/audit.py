"""Audit of the `social` table: checks that follows, favorites and counts are consistent.

The audit scans the whole table once. A suspected mismatch is read again until two reads agree,
because likes and follows are counted some seconds later. A follow or a favorite is two items; a
repair deletes an item whose counterpart is missing. It sets a wrong count to the number of items,
unless the count has changed since it was read.

Cost: the table is read twice, once to scan it and once to count items.
"""

from __future__ import annotations

import asyncio
import functools
import operator
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, NamedTuple

from chatserver.features.social.model import Counts, PostId
from chatserver.features.social.warm import social_items as social
from chatserver.features.social.warm.likes import SocialLikes
from chatserver.features.social.warm.social_items import SocialTable
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.conditions import Attr, Raw
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import try_write
from chatserver.warm.schema.tables import SOCIAL
from chatserver.warm.schema.tables import SocialField as Field

READS_MAX: Final = 5
_OTHER_SIDE: Final = {"follower": "following", "following": "follower"}


class SocialFinding(NamedTuple):
    """An inconsistent item: `what` is its kind, and `key` its partition and sort key."""

    what: str
    key: str
    stored: str
    counted: str
    is_repaired: bool


class Progress(NamedTuple):
    """How many items were checked, and how many changed too often to be checked."""

    rows: int
    unstable: int


class SocialAudit:
    """One scan of the `social` table.

    `has_uncounted` returns whether a post or user has uncounted changes. `settle_s` is the maximum
    time from storing a like or follow until the change of its count is queued.
    """

    def __init__(
        self,
        *,
        client: DynamoClient,
        has_uncounted: Callable[[str], Awaitable[bool]],
        settle_s: float,
        is_repairing: bool,
    ) -> None:
        self._table = SocialTable(client)
        self._likes = SocialLikes(client)
        self._has_uncounted = has_uncounted
        self._settle_s = settle_s
        self._is_repairing = is_repairing
        self._rows = self._unsteady = 0

    @property
    def progress(self) -> Progress:
        return Progress(self._rows, self._unsteady)

    async def iter_findings(self) -> AsyncIterator[SocialFinding]:
        """Scan the table and yield inconsistent items.

        Raises:
            Unavailable: DynamoDB did not respond.
        """
        run = ""
        async for rows in self._table.iter_scan(is_consistent=True):
            for row in rows:
                self._rows += 1
                partition, sort = row[Field.PK]["S"], row[Field.SK]["S"]
                finding = await self._check_row(partition, sort)
                if finding is None and partition != run and partition.startswith("u#"):
                    finding = await self._check_missing_count(partition)
                run = partition
                if finding is not None:
                    yield finding

    async def _check_row(self, partition: str, sort: str) -> SocialFinding | None:
        match partition.split("#"):
            case ["u", user] if sort == social.COUNT:
                return await self._check_counts(user)
            case ["u", user, ("follower" | "following") as side]:
                return await self._check_edge(user, side, sort.removeprefix("u#"))
            case ["u", user, "favorite"]:
                return await self._check_favorite(user, sort)
            case ["p", post, "likecount"]:
                return await self._check_like_count(PostId(post))
        return None

    async def _check_missing_count(self, partition: str) -> SocialFinding | None:
        """Check a user who has followers, followed users or posts but no `count` item."""
        _, user, *kind = partition.split("#")
        if kind and kind[0] in ("follower", "following", "post"):
            count_row = await self._table.find(social.COUNTS.key(user=user))
            if count_row is None:
                return await self._check_counts(user)
        return None

    async def _check_edge(self, user: str, side: str, other: str) -> SocialFinding | None:
        forward = f"u#{user}#{side}", social.user_key(other)
        reverse = f"u#{other}#{_OTHER_SIDE[side]}", social.user_key(user)
        return await self._check_pair("follow", forward, reverse)

    async def _check_favorite(self, user: str, sort: str) -> SocialFinding | None:
        """Check that a favorite item and its reference item point to each other."""
        partition = social.favorites_key(user)
        item = await self._table.find((partition, sort))
        if item is None:
            return None
        other = (item.get(Field.REF) or item.get(Field.PLACE) or {"S": ""})["S"]
        return await self._check_pair("favorite", (partition, sort), (partition, other or "-"))

    async def _check_pair(
        self, what: str, forward: tuple[str, str], reverse: tuple[str, str]
    ) -> SocialFinding | None:
        """Check that the item at `forward` has a counterpart at `reverse`.

        If it has none, a repair deletes the item.
        """
        for attempt in range(READS_MAX):
            keys = [
                {"Get": {"TableName": self._table.name, "Key": self._table.encode_key(key)}}
                for key in (forward, reverse)
            ]
            aws_response = await self._table.client.call(
                "transact_get_items", {"TransactItems": keys}
            )
            forward_item, reverse_item = (
                response.get("Item") for response in aws_response["Responses"]
            )
            if forward_item is None or reverse_item is not None:
                return None
            if attempt == 1:  # The counterpart was missing in two reads, so it does not exist.
                break
        if self._is_repairing:
            await self._table.delete(forward)
        name = f"{forward[0]}/{forward[1]}"
        return SocialFinding(what, name, "one side", "none", self._is_repairing)

    async def _check_counts(self, user: str) -> SocialFinding | None:
        before: tuple[Item, Counts] | None = None
        for _ in range(READS_MAX):
            item = await self._find_counts(user)
            stored = social.COUNTS.decode(item)
            numbers = [
                await self._table.count(Span(SOCIAL, key(user)))
                for key in (social.follower_key, social.following_key, social.posts_key)
            ]
            counted = Counts(*numbers)
            if counted == stored:
                return None
            if await self._has_uncounted(user) or await self._find_counts(user) != item:
                before = None
            elif before == (item, counted):
                is_repaired = self._is_repairing and await self._put_counts(user, item, counted)
                name = f"{social.user_key(user)}/{social.COUNT}"
                return SocialFinding(
                    "count", name, _format_counts(stored), _format_counts(counted), is_repaired
                )
            else:
                before = item, counted
            await asyncio.sleep(self._settle_s)
        self._unsteady += 1
        return None

    async def _check_like_count(self, post: PostId) -> SocialFinding | None:
        before: tuple[object, int] | None = None
        for _ in range(READS_MAX):
            stored = await self._likes.find_stored_count(post)
            counted = await self._likes.count_likes(post)
            if stored is None or stored.n == counted:
                return None
            if await self._has_uncounted(post):
                before = None
            elif before == (stored, counted):
                is_repaired = self._is_repairing and await self._likes.set_count(
                    post, counted, stored
                )
                name = f"{social.likecount_key(post)}/{social.COUNT}"
                return SocialFinding("likecount", name, str(stored.n), str(counted), is_repaired)
            else:
                before = stored, counted
            await asyncio.sleep(self._settle_s)
        self._unsteady += 1
        return None

    async def _find_counts(self, user: str) -> Item:
        return await self._table.find(social.COUNTS.key(user=user)) or {}

    async def _put_counts(self, user: str, stored: Item, wanted: Counts) -> bool:
        """Set a user's counts to `wanted`, unless they have changed since `stored` was read."""
        names = (Field.FOLLOWERS, Field.FOLLOWING, Field.POSTS)
        is_unchanged = functools.reduce(
            operator.and_,
            (
                Attr(name).matches(Raw(stored[name]) if name in stored else None)
                for name in (*names, Field.BATCH)
            ),
        )
        changes = dict(zip(names, _list_counts(wanted), strict=True))
        key = social.COUNTS.key(user=user)
        return await try_write(self._table.update(key, changes, if_=is_unchanged))


def _list_counts(counts: Counts) -> tuple[int, int, int]:
    return counts.followers, counts.following, counts.posts


def _format_counts(counts: Counts) -> str:
    return "{} followers, {} following, {} posts".format(*_list_counts(counts))
