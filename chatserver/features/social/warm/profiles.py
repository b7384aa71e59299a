"""Public profiles in the `social` table; see `chatserver.features.social.warm.social_items`.

The `info` item repeats the name and description from the user's item in `directory`, so that
reading a profile costs one Query. A change to the item in `directory` updates `info` in the same
transaction (`chatserver.features.accounts.warm.accounts`). The first lookup or change of a profile
creates the `info` item (`make_info`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from chatserver.config import Warm
from chatserver.errors import NotFound, Unavailable
from chatserver.features.social.model import Counts, Info
from chatserver.features.social.warm import social_items as social
from chatserver.features.social.warm.social_items import SocialTable
from chatserver.warm.chats import directory_items
from chatserver.warm.dynamo.batched_reads import BatchedReads
from chatserver.warm.dynamo.batches import get_items
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.items import find_item
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.schema.tables import SOCIAL, DirectoryField
from chatserver.warm.schema.tables import SocialField as Field

TRIES_MAX = 4


class SocialProfiles:
    """Reads and writes profiles, and reads the numbers of followers and posts."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._table = SocialTable(client, settings)
        self._reads = BatchedReads(client, self._table.name)

    async def find_profile(self, user: str) -> tuple[Info | None, Counts]:
        """Return a user's profile and counts. Strongly consistent, one Query of two items."""
        span = Span(SOCIAL, social.user_key(user))
        query = {**span.query(self._table.settings), "ConsistentRead": True}
        rows = (await self._table.client.call("query", query))["Items"]
        by_sort: dict[str, Item] = {row[Field.SK]["S"]: row for row in rows}
        info = by_sort.get(social.INFO)
        counts = social.decode_counts(by_sort.get(social.COUNT, {}))
        # If a follow and its removal are concurrent, the removal may be queued and counted first.
        # The counts may then be negative until the follow is counted.
        counts = Counts(max(0, counts.followers), max(0, counts.following), counts.posts)
        return None if info is None else social.decode_info(info), counts

    async def find_follow(
        self, user: str, other: str
    ) -> tuple[Info | None, Info | None, Counts | None]:
        """Return two users' profiles and the first user's counts; None for a missing item.

        Strongly consistent, one BatchGetItem that concurrent callers share.
        """
        places = ((user, social.INFO), (user, social.COUNT), (other, social.INFO))
        keys = [social.row_key(social.user_key(either), sort) for either, sort in places]
        items = await self._reads.get(keys)
        items_by_key = {(item[Field.PK]["S"], item[Field.SK]["S"]): item for item in items}
        infos = [
            None
            if (item := items_by_key.get((social.user_key(either), social.INFO))) is None
            else social.decode_info(item)
            for either in (user, other)
        ]
        counts = items_by_key.get((social.user_key(user), social.COUNT))
        return infos[0], infos[1], None if counts is None else social.decode_counts(counts)

    async def list_infos(self, users: Collection[str]) -> dict[str, Info]:
        """Return the profiles of the users who have one. Cost: one call per 100 users."""
        keys = [social.row_key(social.user_key(user), social.INFO) for user in sorted(set(users))]
        items = await get_items(self._table.client, self._table.name, keys)
        return {info.user: info for info in map(social.decode_info, items)}

    async def make_info(self, user: str) -> Info:
        """Create the profile of a user who does not have one yet.

        Guarantees:
            The profile matches the user's item in `directory`, even if it changes concurrently.
            No profile is created for an erased user.

        Raises:
            NotFound: there is no such user.
        """
        for _ in range(TRIES_MAX):
            key = directory_items.row_key(
                directory_items.user_key(user), directory_items.user_key(user)
            )
            row = await find_item(self._table.client, self._table.directory, key)
            record = None if row is None else directory_items.User.decode(row)
            if record is None or record.erased_ms is not None:
                break
            info = Info(user, record.name, record.about)
            actions = [self._build_unchanged_check(key, record), self._table.put(encode_info(info))]
            try:
                await self._table.transact(actions)
            except ConditionFailed as exc:
                if exc.stored[1] is not None:
                    return social.decode_info(exc.stored[1])
                continue  # the user's item in `directory` has changed
            except Unavailable:
                # Concurrent calls conflict with each other until one has created the profile.
                item = await self._table.find(social.user_key(user), social.INFO)
                if item is None:
                    raise
                return social.decode_info(item)
            return info
        raise NotFound("user: does not exist")

    def _build_unchanged_check(self, key: Item, record: directory_items.User) -> dict[str, Any]:
        conditions = ["attribute_not_exists(#erased)"]
        names = {"#erased": DirectoryField.ERASED}
        values: Item = {}
        for name, text in (
            (DirectoryField.NAME, record.name),
            (DirectoryField.ABOUT, record.about),
        ):
            names[f"#{name}"] = name
            if text is None:
                conditions.append(f"attribute_not_exists(#{name})")
            else:
                conditions.append(f"#{name} = :{name}")
                values[f":{name}"] = {"S": text}
        check: dict[str, Any] = {
            "TableName": self._table.directory,
            "Key": key,
            "ConditionExpression": " AND ".join(conditions),
            "ExpressionAttributeNames": names,
        }
        return {"ConditionCheck": check | ({"ExpressionAttributeValues": values} if values else {})}

    async def put_avatar(self, user: str, avatar: str | None) -> str | None:
        """Set or remove the avatar of a user who has a profile; return the previous avatar."""
        change = "REMOVE #avatar" if avatar is None else "SET #avatar = :avatar"
        request: dict[str, Any] = {
            "TableName": self._table.name,
            "Key": social.row_key(social.user_key(user), social.INFO),
            "UpdateExpression": change,
            "ConditionExpression": "attribute_exists(#pk)",
            "ExpressionAttributeNames": {"#avatar": Field.AVATAR, "#pk": Field.PK},
            "ReturnValues": "ALL_OLD",
        }
        if avatar is not None:
            request["ExpressionAttributeValues"] = {":avatar": {"S": avatar}}
        try:
            response = await self._table.client.call("update_item", request)
        except ConditionFailed:
            raise NotFound("user: does not exist") from None
        return social.decode_info(response["Attributes"]).avatar

    async def remove(self, user: str) -> int:
        """Delete a user's profile and counts; return how many items there were. Idempotent."""
        removed = 0
        for sort in (social.INFO, social.COUNT):
            key = social.row_key(social.user_key(user), sort)
            request = {"TableName": self._table.name, "Key": key, "ReturnValues": "ALL_OLD"}
            removed += "Attributes" in await self._table.client.call("delete_item", request)
        return removed


def encode_info(info: Info) -> Item:
    item = social.row_key(social.user_key(info.user), social.INFO)
    for name, text in (
        (Field.NAME, info.name),
        (Field.ABOUT, info.about),
        (Field.AVATAR, info.avatar),
    ):
        if text is not None:
            item[name] = {"S": text}
    return item
