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

from typing import Final

from chatserver.domain.ids import ChatId, UserId
from chatserver.domain.membership_rules import NOT_A_MEMBER
from chatserver.errors import NotFound
from chatserver.features.chat_preferences.tables import ChatPreferencesField as Field
from chatserver.protocol.frames import ChatPreferences, Draft, PinnedChats
from chatserver.warm.chats.directory_items import chat_key, member_key, row_key, user_key
from chatserver.warm.chats.muted_chats import FOR_EVER_MS
from chatserver.warm.dynamo.client import Action, ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.conditions import Add, Attr, Change, Condition, Discard, encode_item
from chatserver.warm.dynamo.item_attributes import find_number, find_text, get_number
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Key, Table, try_write
from chatserver.warm.schema.tables import DIRECTORY, DirectoryField

PREFIX: Final = "preferences#"
AFTER: Final = "preferences$"  # '$' follows '#'


class PreferenceRows:
    """Reads and writes chat preferences and pinned chats."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = Table(client, DIRECTORY)

    async def get(self, user: UserId, chat: ChatId) -> ChatPreferences:
        """Return the stored preferences for a chat, or the defaults. Strongly consistent."""
        item = await self._table.find((user_key(user), PREFIX + chat))
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
        item, is_unchanged = encode_preferences(user, after, expires_s), _has_rev(before.rev)
        update = self._build_member_update(user, before, after)
        if update is None:
            return await try_write(self._table.put(item, if_=is_unchanged))
        put = self._table.put_action(item, if_=is_unchanged, keeps_stored=True)
        try:
            await self._table.client.transact([put, update])
        except ConditionFailed as exc:
            if exc.stored[0] is not None:
                return False
            raise NotFound(NOT_A_MEMBER) from None
        return True

    async def drop_cleared(self, user: UserId, chat: ChatId, upto: int) -> None:
        """Remove `upto`, the previous `cleared_upto`, from `hidden` in the `Member` item.

        Idempotent.
        """
        hidden = DirectoryField.HIDDEN
        write = self._table.update(
            (chat_key(chat), member_key(user)),
            {hidden: Discard({-upto})},
            if_=Attr(hidden).exists,
        )
        await try_write(write)

    async def list(
        self, user: UserId, after: str | None, limit: int
    ) -> tuple[list[ChatPreferences], str | None]:
        """Return one page of preferences, sorted by chat id, and the next page's `after`.

        A page may have fewer than `limit` items. Strongly consistent. Cost: one Query.
        """
        first = PREFIX if after is None else PREFIX + after
        span = Span(DIRECTORY, user_key(user), between=(first, AFTER))
        query = self._table.build_query(span, limit=limit + 1)
        response = await self._table.client.call("query", query)
        rows = [row for row in response["Items"] if row[Field.SK]["S"] != first]
        page = [decode_preferences(row) for row in rows[:limit]]
        has_more = len(rows) > limit or "LastEvaluatedKey" in response
        return page, page[-1].chat if page and has_more else None

    async def get_pinned(self, user: UserId) -> PinnedChats:
        """Return the pinned chats. Strongly consistent."""
        item = await self._table.find(_pinned_row(user))
        return decode_pinned(item) if item else PinnedChats([])

    async def put_pinned(self, user: UserId, before: PinnedChats, after: PinnedChats) -> bool:
        """Replace the pinned chats; return False if the stored ones are no longer `before`.

        Raises:
            Unavailable: the pinned chats may have been replaced.
        """
        write = self._table.put(encode_pinned(user, after), if_=_has_rev(before.rev))
        return await try_write(write)

    def _build_member_update(
        self, user: UserId, before: ChatPreferences, after: ChatPreferences
    ) -> Action | None:
        changes: dict[str, Change] = {}
        until = after.muted_until
        if until != before.muted_until:
            changes[DirectoryField.QUIET] = None if until is None else until * 1000 or FOR_EVER_MS
        if after.cleared_upto != before.cleared_upto:
            changes[DirectoryField.HIDDEN] = Add({-after.cleared_upto})
        if not changes:
            return None
        key: Key = (chat_key(after.chat), member_key(user))
        is_member = Attr(DirectoryField.ROLE).exists
        return self._table.update_action(key, changes, if_=is_member, keeps_stored=True)


def encode_preferences(
    user: UserId, preferences: ChatPreferences, expires_s: int | None = None
) -> Item:
    draft = preferences.draft
    return row_key(user_key(user), PREFIX + preferences.chat) | encode_item(
        {
            Field.REV: preferences.rev,
            Field.ARCHIVED: preferences.archived or None,
            Field.MUTED_UNTIL: preferences.muted_until,
            Field.UNREAD: preferences.marked_unread or None,
            Field.TEXT: None if draft is None else draft.text,
            Field.DRAFT: None if draft is None else draft.version,
            Field.CLEARED: preferences.cleared_upto or None,
            Field.EXPIRES_AT: expires_s,
        }
    )


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
    return row_key(*_pinned_row(user)) | encode_item(
        {Field.REV: pinned.rev, Field.PINNED_CHATS: pinned.chats}
    )


def decode_pinned(item: Item) -> PinnedChats:
    """Decode the pinned chats. Raises CorruptData."""
    chats = [value["S"] for value in item[Field.PINNED_CHATS]["L"]]
    return PinnedChats(chats, get_number(item, Field.REV))


def _pinned_row(user: UserId) -> tuple[str, str]:
    return user_key(user), f"pinned_chats#{user}"


def _has_rev(rev: int) -> Condition:
    # TTL may have removed the item since it was read.
    return Attr(Field.REV).is_absent | (Attr(Field.REV) == rev)
