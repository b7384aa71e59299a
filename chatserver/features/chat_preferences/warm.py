"""Chat preferences in the `directory` table, in the user's partition.

| record       | `PK`       | `SK`                  | attributes                                   |
|--------------|------------|-----------------------|----------------------------------------------|
| preferences  | `u#<user>` | `preferences#<chat>`  | `rev archived? muted_until? unread? text?    |
|              |            |                       | draft? cleared? expires_at?`                 |
| pinned chats | `u#<user>` | `pinned_chats#<user>` | `rev pinned_chats`                           |

Because of these keys, one Query returns the preferences for many chats. They are not stored in the
`Member` item, because a draft there would be expensive: the item is written whenever a read mark
moves, and is read with all members of a chat.

The `Member` item has a copy of two preferences: `quiet` of `muted_until`, for pushes
(`chatserver.warm.chats.muted_chats`), and `hidden` of `cleared`, for reading the history
(`HiddenSeqs`). One transaction writes a preference and its copy.
All of a user's pinned chats are in one item, so their order and number are exact.
"""

from __future__ import annotations

from typing import Any, Final

from chatserver.config import Warm
from chatserver.domain.ids import ChatId, UserId
from chatserver.domain.membership_rules import NOT_A_MEMBER
from chatserver.errors import NotFound
from chatserver.features.chat_preferences.frames import ChatPreferences, Draft, PinnedChats
from chatserver.features.chat_preferences.tables import ChatPreferencesField as Field
from chatserver.warm.chats.directory_items import chat_key, member_key, row_key, user_key
from chatserver.warm.chats.muted_chats import FOR_EVER_MS
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.item_attributes import find_number, find_text, get_number
from chatserver.warm.dynamo.items import find_item, write_conditionally
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.schema.tables import DIRECTORY, DirectoryField

PREFIX: Final = "preferences#"
AFTER: Final = "preferences$"  # '$' follows '#'


class PreferenceRows:
    """Reads and writes chat preferences and pinned chats."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._settings = settings
        self._table = DIRECTORY.name_in(settings)

    async def get(self, user: UserId, chat: ChatId) -> ChatPreferences:
        """Return the stored preferences for a chat, or the defaults. Strongly consistent."""
        item = await self._get(user, PREFIX + chat)
        return decode_preferences(item) if item else ChatPreferences(chat)

    async def put(
        self, user: UserId, before: ChatPreferences, after: ChatPreferences, expires_s: int | None
    ) -> bool:
        """Replace preferences; return False if the stored ones are no longer `before`.

        Guarantees:
            Atomic: either both the preferences and the `Member` item are written, or neither.

        Raises:
            NotFound: `muted_until` or `cleared_upto` changes, and there is no `Member` item.
            Unavailable: the preferences may have been replaced.
        """
        put = self._build_put(encode_preferences(user, after, expires_s), before.rev)
        update = self._build_member_update(user, before, after)
        if update is None:
            return await write_conditionally(self._client, "put_item", put)
        put["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        actions = [{"Put": put}, {"Update": update}]
        try:
            await self._client.call("transact_write_items", {"TransactItems": actions})
        except ConditionFailed as exc:
            if exc.stored[0] is not None:
                return False
            raise NotFound(NOT_A_MEMBER) from None
        return True

    async def drop_cleared(self, user: UserId, chat: ChatId, upto: int) -> None:
        """Remove `upto`, the previous `cleared_upto`, from `hidden` in the `Member` item.

        Idempotent.
        """
        request = {
            "TableName": self._table,
            "Key": row_key(chat_key(chat), member_key(user)),
            "UpdateExpression": "DELETE #hidden :upto",
            "ConditionExpression": "attribute_exists(#hidden)",
            "ExpressionAttributeNames": {"#hidden": DirectoryField.HIDDEN},
            "ExpressionAttributeValues": {":upto": {"NS": [str(-upto)]}},
        }
        await write_conditionally(self._client, "update_item", request)

    async def list(
        self, user: UserId, after: str | None, limit: int
    ) -> tuple[list[ChatPreferences], str | None]:
        """Return one page of preferences, sorted by chat id, and the next page's `after`.

        A page may have fewer than `limit` items. Strongly consistent. Cost: one Query.
        """
        first = PREFIX if after is None else PREFIX + after
        request: dict[str, Any] = {
            **Span(DIRECTORY, user_key(user), between=(first, AFTER)).query(self._settings),
            "ConsistentRead": True,
            "Limit": limit + 1,
        }
        response = await self._client.call("query", request)
        rows = [row for row in response["Items"] if row[Field.SK]["S"] != first]
        page = [decode_preferences(row) for row in rows[:limit]]
        has_more = len(rows) > limit or "LastEvaluatedKey" in response
        return page, page[-1].chat if page and has_more else None

    async def get_pinned(self, user: UserId) -> PinnedChats:
        """Return the pinned chats. Strongly consistent."""
        item = await self._get(user, _pinned_key(user))
        return decode_pinned(item) if item else PinnedChats([])

    async def put_pinned(self, user: UserId, before: PinnedChats, after: PinnedChats) -> bool:
        """Replace the pinned chats; return False if the stored ones are no longer `before`.

        Raises:
            Unavailable: the pinned chats may have been replaced.
        """
        return await write_conditionally(
            self._client, "put_item", self._build_put(encode_pinned(user, after), before.rev)
        )

    async def _get(self, user: UserId, sort: str) -> Item:
        key = row_key(user_key(user), sort)
        return await find_item(self._client, self._table, key) or {}

    def _build_put(self, item: Item, rev: int) -> dict[str, Any]:
        return {
            "TableName": self._table,
            "Item": item,
            # TTL may have removed the item since it was read.
            "ConditionExpression": "attribute_not_exists(#rev) OR #rev = :before",
            "ExpressionAttributeNames": {"#rev": Field.REV},
            "ExpressionAttributeValues": {":before": {"N": str(rev)}},
        }

    def _build_member_update(
        self, user: UserId, before: ChatPreferences, after: ChatPreferences
    ) -> dict[str, Any] | None:
        names, values = {"#role": DirectoryField.ROLE}, dict[str, Any]()
        clauses: list[str] = []
        if after.muted_until != before.muted_until:
            names["#quiet"] = DirectoryField.QUIET
            clauses.append("REMOVE #quiet" if after.muted_until is None else "SET #quiet = :until")
            if after.muted_until is not None:
                values[":until"] = {"N": str(after.muted_until * 1000 or FOR_EVER_MS)}
        if after.cleared_upto != before.cleared_upto:
            names["#hidden"] = DirectoryField.HIDDEN
            clauses.append("ADD #hidden :upto")
            values[":upto"] = {"NS": [str(-after.cleared_upto)]}
        if not clauses:
            return None
        update: dict[str, Any] = {
            "TableName": self._table,
            "Key": row_key(chat_key(after.chat), member_key(user)),
            "UpdateExpression": " ".join(clauses),
            "ConditionExpression": "attribute_exists(#role)",
            "ExpressionAttributeNames": names,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        if values:
            update["ExpressionAttributeValues"] = values
        return update


def encode_preferences(
    user: UserId, preferences: ChatPreferences, expires_s: int | None = None
) -> Item:
    item = row_key(user_key(user), PREFIX + preferences.chat)
    item[Field.REV] = {"N": str(preferences.rev)}
    if preferences.archived:
        item[Field.ARCHIVED] = {"BOOL": True}
    if preferences.muted_until is not None:
        item[Field.MUTED_UNTIL] = {"N": str(preferences.muted_until)}
    if preferences.marked_unread:
        item[Field.UNREAD] = {"BOOL": True}
    if preferences.draft is not None:
        item[Field.TEXT] = {"S": preferences.draft.text}
        item[Field.DRAFT] = {"N": str(preferences.draft.version)}
    if preferences.cleared_upto:
        item[Field.CLEARED] = {"N": str(preferences.cleared_upto)}
    if expires_s is not None:
        item[Field.EXPIRES_AT] = {"N": str(expires_s)}
    return item


def decode_preferences(item: Item) -> ChatPreferences:
    """Decode the preferences for a chat. Raises CorruptData."""
    version = find_number(item, Field.DRAFT)
    return ChatPreferences(
        chat=item[Field.SK]["S"].removeprefix(PREFIX),
        rev=get_number(item, Field.REV),
        archived=Field.ARCHIVED in item,
        muted_until=find_number(item, Field.MUTED_UNTIL),
        marked_unread=Field.UNREAD in item,
        draft=None if version is None else Draft(find_text(item, Field.TEXT) or "", version),
        cleared_upto=find_number(item, Field.CLEARED) or 0,
    )


def encode_pinned(user: UserId, pinned: PinnedChats) -> Item:
    return row_key(user_key(user), _pinned_key(user)) | {
        Field.REV: {"N": str(pinned.rev)},
        Field.PINNED_CHATS: {"L": [{"S": chat} for chat in pinned.chats]},
    }


def decode_pinned(item: Item) -> PinnedChats:
    """Decode the pinned chats. Raises CorruptData."""
    chats = [value["S"] for value in item[Field.PINNED_CHATS]["L"]]
    return PinnedChats(chats, get_number(item, Field.REV))


def _pinned_key(user: UserId) -> str:
    return f"pinned_chats#{user}"
