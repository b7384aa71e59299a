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
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from chatserver.features.social.model import PostId
from chatserver.features.social.warm import social_items as social
from chatserver.features.social.warm.social_items import SocialTable
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.conditions import Attr, Raw
from chatserver.warm.dynamo.item_attributes import find_number
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Key, try_write
from chatserver.warm.schema.tables import SOCIAL
from chatserver.warm.schema.tables import SocialField as Field

READS_MAX: Final = 5
_LABELS: Final = {
    Field.FOLLOWERS: " followers",
    Field.FOLLOWING: " following",
    Field.POSTS: " posts",
    Field.N: "",
}
_OTHER_SIDE: Final = {"follower": "following", "following": "follower"}


class SocialFinding(NamedTuple):
    """An inconsistent item: `what` is its kind, and `key` its partition and sort key."""

    what: str
    key: str
    stored: str
    counted: str
    is_repaired: bool


class AuditProgress(NamedTuple):
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
        self._has_uncounted = has_uncounted
        self._settle_s = settle_s
        self._is_repairing = is_repairing
        self._rows = self._unsteady = 0

    @property
    def progress(self) -> AuditProgress:
        return AuditProgress(self._rows, self._unsteady)

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
                return await self._check_user_counts(user)
            case ["u", user, ("follower" | "following") as side]:
                return await self._check_edge(user, side, sort.removeprefix("u#"))
            case ["u", user, "favorite"]:
                return await self._check_favorite(user, sort)
            case ["p", post, "likecount"]:
                partitions = {Field.N: social.likelist_key(PostId(post))}
                return await self._check_counts(post, (partition, social.COUNT), partitions)
        return None

    async def _check_missing_count(self, partition: str) -> SocialFinding | None:
        """Check a user who has followers, followed users or posts but no `count` item."""
        _, user, *kind = partition.split("#")
        if kind and kind[0] in ("follower", "following", "post"):
            count_row = await self._table.find(social.COUNTS.key(user=user))
            if count_row is None:
                return await self._check_user_counts(user)
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

    async def _check_user_counts(self, user: str) -> SocialFinding | None:
        partitions = {
            Field.FOLLOWERS: social.follower_key(user),
            Field.FOLLOWING: social.following_key(user),
            Field.POSTS: social.posts_key(user),
        }
        return await self._check_counts(user, social.COUNTS.key(user=user), partitions)

    async def _check_counts(
        self, subject: str, key: tuple[str, str], partitions: Mapping[str, str]
    ) -> SocialFinding | None:
        """Check the counts of a post or user against the number of items in each partition.

        `partitions`: for each attribute of the item at `key`, the partition whose items it counts.
        """
        before: tuple[Item | None, dict[str, int]] | None = None
        for _ in range(READS_MAX):
            item = await self._table.find(key)
            if item is None and Field.N in partitions:
                return None  # the post was deleted
            stored = {name: find_number(item or {}, name) or 0 for name in partitions}
            counted = {
                name: await self._table.count(Span(SOCIAL, partition))
                for name, partition in partitions.items()
            }
            if counted == stored:
                return None
            if await self._has_uncounted(subject) or await self._table.find(key) != item:
                before = None
            elif before == (item, counted):
                is_repaired = self._is_repairing and await self._put_counts(key, item, counted)
                what = "likecount" if Field.N in partitions else "count"
                numbers = _format_counts(stored), _format_counts(counted)
                return SocialFinding(what, "/".join(key), *numbers, is_repaired)
            else:
                before = item, counted
            await asyncio.sleep(self._settle_s)
        self._unsteady += 1
        return None

    async def _put_counts(self, key: Key, stored: Item | None, counted: dict[str, int]) -> bool:
        """Store counts, unless the item has changed since `stored` was read."""
        values = {name: (stored or {}).get(name) for name in (*counted, Field.BATCH)}
        is_unchanged = functools.reduce(
            operator.and_,
            (
                Attr(name).matches(None if value is None else Raw(value))
                for name, value in values.items()
            ),
        )
        return await try_write(self._table.update(key, counted, if_=is_unchanged))


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number}{_LABELS[name]}" for name, number in counts.items())
