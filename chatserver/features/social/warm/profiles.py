"""Public profiles in the `social` table; see `chatserver.features.social.warm.social_items`.

The `info` item repeats the name and description from the user's item in `directory`, so that
reading a profile costs one Query. A change to the item in `directory` updates `info` in the same
transaction (`chatserver.features.accounts.warm.accounts`). The first lookup or change of a profile
creates the `info` item (`make_info`).
"""

from __future__ import annotations

from collections.abc import Collection

from chatserver.errors import NotFound, Unavailable
from chatserver.features.social.model import Info, UserCounts
from chatserver.features.social.warm import social_items as social
from chatserver.features.social.warm.social_items import SocialTable
from chatserver.warm.chats import directory_items
from chatserver.warm.dynamo.batched_reads import BatchedReads
from chatserver.warm.dynamo.client import Action, ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.conditions import Attr
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Key
from chatserver.warm.schema.tables import SOCIAL, DirectoryField
from chatserver.warm.schema.tables import SocialField as Field

TRIES_MAX = 4


class SocialProfiles:
    """Reads and writes profiles, and reads the numbers of followers and posts."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = SocialTable(client)
        self._reads = BatchedReads(client, self._table.name)

    async def find_profile(self, user: str) -> tuple[Info | None, UserCounts]:
        """Return a user's profile and counts. Strongly consistent, one Query of two items."""
        rows = await self._table.query(Span(SOCIAL, social.user_key(user)))
        by_sort: dict[str, Item] = {row[Field.SK]["S"]: row for row in rows}
        info = by_sort.get(social.INFO)
        counts = social.COUNTS.decode(by_sort.get(social.COUNT, {}))
        # If a follow and its removal are concurrent, the removal may be queued and counted first.
        # The counts may then be negative until the follow is counted.
        counts = UserCounts(max(0, counts.followers), max(0, counts.following), counts.posts)
        return None if info is None else social.INFO_ITEM.decode(info), counts

    async def find_follow(
        self, user: str, other: str
    ) -> tuple[Info | None, Info | None, UserCounts | None]:
        """Return two users' profiles and the first user's counts; None for a missing item.

        Strongly consistent, one BatchGetItem that concurrent callers share.
        """
        keys = [
            social.INFO_ITEM.key(user=user),
            social.INFO_ITEM.key(user=other),
            social.COUNTS.key(user=user),
        ]
        items = await self._reads.get([social.row_key(*key) for key in keys])
        items_by_key = {(item[Field.PK]["S"], item[Field.SK]["S"]): item for item in items}
        mine, theirs, counts = (items_by_key.get(key) for key in keys)
        return (
            None if mine is None else social.INFO_ITEM.decode(mine),
            None if theirs is None else social.INFO_ITEM.decode(theirs),
            None if counts is None else social.COUNTS.decode(counts),
        )

    async def list_infos(self, users: Collection[str]) -> dict[str, Info]:
        """Return the profiles of the users who have one. Cost: one call per 100 users."""
        keys: list[Key] = [social.INFO_ITEM.key(user=user) for user in sorted(set(users))]
        items = await self._table.get_items(keys)
        return {info.user: info for info in map(social.INFO_ITEM.decode, items)}

    async def make_info(self, user: str) -> Info:
        """Create the profile of a user who does not have one yet.

        Guarantees:
            The profile matches the user's item in `directory`, even if it changes concurrently.
            No profile is created for an erased user.

        Raises:
            NotFound: there is no such user.
        """
        for _ in range(TRIES_MAX):
            key = directory_items.user_key(user), directory_items.user_key(user)
            row = await self._table.directory.find(key)
            record = None if row is None else directory_items.USER.decode(row)
            if record is None or record.erased_ms is not None:
                break
            info = Info(user, record.name, record.about)
            actions = [
                self._build_unchanged_check(key, record),
                self._table.create_action(social.INFO_ITEM.encode(info)),
            ]
            try:
                await self._table.transact(actions)
            except ConditionFailed as exc:
                if exc.stored[1] is not None:
                    return social.INFO_ITEM.decode(exc.stored[1])
                continue  # the user's item in `directory` has changed
            except Unavailable:
                # Concurrent calls conflict with each other until one has created the profile.
                item = await self._table.find(social.INFO_ITEM.key(user=user))
                if item is None:
                    raise
                return social.INFO_ITEM.decode(item)
            return info
        raise NotFound("user: does not exist")

    def _build_unchanged_check(self, key: Key, record: directory_items.User) -> Action:
        is_unchanged = (
            Attr(DirectoryField.ERASED).is_absent
            & Attr(DirectoryField.NAME).matches(record.name)
            & Attr(DirectoryField.ABOUT).matches(record.about)
        )
        return self._table.directory.check_action(key, if_=is_unchanged)

    async def put_avatar(self, user: str, avatar: str | None) -> str | None:
        """Set or remove the avatar of a user who has a profile; return the previous avatar."""
        key, changes = social.INFO_ITEM.key(user=user), {Field.AVATAR: avatar}
        try:
            item = await self._table.update(key, changes, "old", if_=social.EXISTS)
        except ConditionFailed:
            raise NotFound("user: does not exist") from None
        return social.INFO_ITEM.decode(item).avatar

    async def remove(self, user: str) -> int:
        """Delete a user's profile and counts; return how many items there were. Idempotent."""
        removed = 0
        for sort in (social.INFO, social.COUNT):
            removed += bool(await self._table.delete((social.user_key(user), sort), "old"))
        return removed
