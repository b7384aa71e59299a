"""Batched counts in the `social` table; see `chatserver.features.social.warm.social_items`.

Counts of likes, followers and followed users are not written in the transaction that writes a like
or follow, because concurrent transactions on one count item would conflict. Changes go into a queue
(`chatserver.features.social.hot`), and `worker/counters.py` applies them in batches.

The attribute `batch` is the newest queue entry included in an item's counts. An update succeeds
only if `batch` is older than all entries that the update adds. If a worker crashes after the write
and another worker repeats the write, the entries still count only once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from chatserver.features.social.warm import social_items as social
from chatserver.features.social.warm.social_items import SocialTable
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.conditions import Add, Attr, Change
from chatserver.warm.dynamo.table import Key
from chatserver.warm.schema.tables import SocialField as Field


class CountResult(NamedTuple):
    """Result of an update of a count item.

    `already_counted`: the item already includes the queue entries up to `upto`. `missing`: there
    is no such item.
    """

    outcome: Literal["counted", "already_counted", "missing"]
    upto: str = ""


async def add_changes(
    table: SocialTable, key: Key, changes: Mapping[str, int], first: str, last: str
) -> CountResult:
    """Add the queue entries from `first` to `last` to an item's counts.

    `changes` maps each count attribute to the sum of the entries.

    Guarantees:
        Idempotent: entries that are already counted are not added.
        Cost: one write of one item.
    """
    is_older = Attr(Field.BATCH).is_absent | (Attr(Field.BATCH) < first)
    try:
        await table.update(
            key, _build_changes(changes, last), if_=social.EXISTS & is_older, keeps_stored=True
        )
    except ConditionFailed as exc:
        stored = exc.stored[0]
        return (
            CountResult("missing")
            if stored is None
            else CountResult("already_counted", get_batch(stored))
        )
    return CountResult("counted")


def get_batch(item: Item) -> str:
    """Return the newest queue entry that an item's counts include; empty if there is none."""
    return str(item.get(Field.BATCH, {"S": ""})["S"])


class SocialCounts:
    """Writes follower and following counts."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = SocialTable(client)

    async def add_follows(
        self, user: str, *, followers: int, following: int, first: str, last: str
    ) -> CountResult:
        """Add to a user's counts the sums of the queue entries from `first` to `last`.

        Guarantees:
            Idempotent, like `add_changes`.
            The item is created only if the user has a profile, so an erased user gets no counts.
            Cost: one write of one item; for a user's first counts, a transaction.
        """
        key = social.COUNTS.key(user=user)
        changes = {Field.FOLLOWERS: followers, Field.FOLLOWING: following}
        while True:
            result = await add_changes(self._table, key, changes, first, last)
            if result.outcome != "missing":
                return result
            try:
                await self._create(user, key, changes, last)
            except ConditionFailed as exc:
                if exc.stored[1] is None:
                    return result  # the user was erased
                continue  # another process has created the item
            return CountResult("counted")

    async def _create(self, user: str, key: Key, changes: Mapping[str, int], last: str) -> None:
        is_new = Attr(Field.PK).is_absent
        update = self._table.update_action(
            key, _build_changes(changes, last), if_=is_new, keeps_stored=True
        )
        await self._table.transact([self._table.check_info_action(user), update])


def _build_changes(changes: Mapping[str, int], last: str) -> dict[str, Change]:
    return {**{name: Add(change) for name, change in changes.items()}, Field.BATCH: last}
