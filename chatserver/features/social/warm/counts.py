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
from typing import Any, Literal, NamedTuple

from chatserver.config import Warm
from chatserver.features.social.warm import social_items as social
from chatserver.features.social.warm.social_items import SocialTable
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.schema.tables import SocialField as Field


class CountResult(NamedTuple):
    """Result of an update of a count item.

    `already_counted`: the item already includes the queue entries up to `upto`. `missing`: there
    is no such item.
    """

    outcome: Literal["counted", "already_counted", "missing"]
    upto: str = ""


async def add_changes(
    table: SocialTable, key: Item, changes: Mapping[str, int], first: str, last: str
) -> CountResult:
    """Add the queue entries from `first` to `last` to an item's counts.

    `changes` maps each count attribute to the sum of the entries.

    Guarantees:
        Idempotent: entries that are already counted are not added.
        Cost: one write of one item.
    """
    condition = "attribute_exists(#pk) AND (attribute_not_exists(#batch) OR #batch < :first)"
    update = _update(table, key, changes, last)
    update["ConditionExpression"] = condition
    update["ExpressionAttributeNames"] |= {"#pk": Field.PK}
    update["ExpressionAttributeValues"] |= {":first": {"S": first}}
    try:
        await table.client.call("update_item", update)
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

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._table = SocialTable(client, settings)

    async def add_follows(
        self, user: str, *, followers: int, following: int, first: str, last: str
    ) -> CountResult:
        """Add to a user's counts the sums of the queue entries from `first` to `last`.

        Guarantees:
            Idempotent, like `add_changes`.
            The item is created only if the user has a profile, so an erased user gets no counts.
            Cost: one write of one item; for a user's first counts, a transaction.
        """
        key = social.row_key(social.user_key(user), social.COUNT)
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

    async def _create(self, user: str, key: Item, changes: Mapping[str, int], last: str) -> None:
        update = _update(self._table, key, changes, last)
        update["ConditionExpression"] = "attribute_not_exists(#pk)"
        update["ExpressionAttributeNames"] |= {"#pk": Field.PK}
        await self._table.transact([self._table.check_info(user), {"Update": update}])


def _update(table: SocialTable, key: Item, changes: Mapping[str, int], last: str) -> dict[str, Any]:
    names = {f"#count{number}": name for number, name in enumerate(changes)}
    values: Item = {
        f":change{number}": {"N": str(change)} for number, change in enumerate(changes.values())
    }
    adds = ", ".join(f"#count{number} :change{number}" for number in range(len(changes)))
    return {
        "TableName": table.name,
        "Key": key,
        "UpdateExpression": f"ADD {adds} SET #batch = :last",
        "ExpressionAttributeNames": names | {"#batch": Field.BATCH},
        "ExpressionAttributeValues": values | {":last": {"S": last}},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
