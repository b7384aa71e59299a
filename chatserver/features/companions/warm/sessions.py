"""Companion session items in the `chat_session` table.

| item   | `PK`     | `SK`              | attributes                                       |
|--------|----------|-------------------|--------------------------------------------------|
| active | `<user>` | `#ACTIVE#<ai>`    | `chat_id ai_version create_time GSI1PK`          |
| ended  | `<user>` | `<ai>#OLD#<chat>` | the same and `delete_time`                       |

`GSI1PK` is the chat id; the index `GSI1_chat` maps a chat to its session. `#` sorts before every
character of an id, so a Query returns the active sessions first. The ended sessions follow, sorted
by companion and then by time, because a chat id is a ULID.

The transaction that ends a session also marks the chat's item in the `directory` table as
read-only.

Invariant: a user has at most one active session with a companion, and every session that is no
longer active has an ended item.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, UserId
from chatserver.errors import Conflict, CorruptData, LostRace
from chatserver.features.companions.model import (
    SESSION_CHANGED,
    SESSION_ENDED,
    CompanionSession,
    describe_active,
)
from chatserver.warm.chats.directory_items import chat_key, row_key
from chatserver.warm.dynamo.client import Action, ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.conditions import Add, Attr, Changes, Condition, encode_item
from chatserver.warm.dynamo.item_attributes import find_number, get_number, get_text
from chatserver.warm.dynamo.paging import QueryPage, Span, Token, read_page
from chatserver.warm.dynamo.table import Key, Table
from chatserver.warm.schema.tables import (
    CHAT_SESSION,
    DIRECTORY,
    SESSION_CHAT_INDEX,
    DirectoryField,
)
from chatserver.warm.schema.tables import SessionField as Field

ACTIVE_PREFIX: Final = "#ACTIVE#"
OLD: Final = "#OLD#"


def active_key(companion: str) -> str:
    return f"{ACTIVE_PREFIX}{companion}"


def old_key(companion: str, chat: str) -> str:
    return f"{companion}{OLD}{chat}"


def encode_session(session: CompanionSession) -> Item:
    is_old = session.delete_time is not None
    sort = old_key(session.companion, session.chat) if is_old else active_key(session.companion)
    return row_key(session.user, sort) | encode_item(
        {**_list_changes(session), Field.DELETED: session.delete_time}
    )


def _list_changes(session: CompanionSession) -> dict[str, str | int]:
    """Return the attributes that change if the session replaces another."""
    return {
        Field.GSI1_PK: session.chat,
        Field.CHAT: session.chat,
        Field.VERSION: session.ai_version,
        Field.CREATED: session.create_time,
    }


def decode_session(item: Item) -> CompanionSession:
    """Decode a session item. Raises CorruptData."""
    sort = get_text(item, Field.SK)
    name, is_old, _ = sort.partition(OLD)
    if not is_old:
        name = sort.removeprefix(ACTIVE_PREFIX)
    deleted = find_number(item, Field.DELETED)
    if bool(is_old) == (deleted is None) or "#" in name:
        raise CorruptData(f"table chat_session: {item.get(Field.PK)}: invalid item {sort!r}")
    return CompanionSession(
        user=UserId(get_text(item, Field.PK)),
        companion=CompanionId(UserId(name)),
        chat=ChatId(get_text(item, Field.CHAT)),
        ai_version=get_number(item, Field.VERSION),
        create_time=get_number(item, Field.CREATED),
        delete_time=deleted,
    )


class SessionRows:
    """Reads and writes the `chat_session` table. Times are in milliseconds since 1970."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = Table(client, CHAT_SESSION)
        self._directory = Table(client, DIRECTORY)

    async def create(self, session: CompanionSession) -> None:
        """Start a session.

        Guarantees:
            Idempotent: a retry with the same chat succeeds.

        Raises:
            Conflict: another session is already active; the error contains its chat.
        """
        item = encode_session(session)
        try:
            await self._table.put(item, if_=Attr(Field.PK).is_absent, keeps_stored=True)
        except ConditionFailed as exc:
            stored = exc.stored[0]
            active = decode_session(stored) if stored else None
            if active is None:
                active = await self.find_active(session.user, session.companion)
            if active is None:
                raise LostRace(SESSION_CHANGED) from None
            if active.chat != session.chat:
                raise Conflict(describe_active(active)) from None

    async def find_active(self, user: UserId, companion: CompanionId) -> CompanionSession | None:
        """Return a user's active session with a companion. Strongly consistent."""
        return await self._find(user, active_key(companion))

    async def find_old(
        self, user: UserId, companion: CompanionId, chat: ChatId
    ) -> CompanionSession | None:
        """Return an ended session. Strongly consistent."""
        return await self._find(user, old_key(companion, chat))

    async def delete(self, active: CompanionSession, now_ms: int) -> CompanionSession:
        """End the session that was read as `active`; return the ended session.

        Guarantees:
            Atomic: the active item is replaced by the ended item, and the chat becomes read-only.
            Idempotent: an identical retry succeeds.

        Raises:
            Conflict: the session is no longer active, or it has no chat yet.
        """
        old = dataclasses.replace(active, delete_time=now_ms)
        delete = self._table.delete_action(_active_row(active), if_=_is_unchanged(active))
        return await self._end(old, delete)

    async def renew(self, active: CompanionSession, successor: CompanionSession) -> None:
        """End the session that was read as `active` and start `successor`.

        Guarantees:
            Atomic, like `delete`: there is exactly one active session at any moment.
            Idempotent: an identical retry succeeds.

        Raises:
            Conflict: the session is no longer active, or it has no chat yet.
        """
        old = dataclasses.replace(active, delete_time=successor.create_time)
        update = self._table.update_action(
            _active_row(active), _list_changes(successor), if_=_is_unchanged(active)
        )
        await self._end(old, update, successor)

    async def update_version(self, active: CompanionSession, version: int) -> CompanionSession:
        """Change which version of the companion responds from now on.

        Guarantees:
            Idempotent.

        Raises:
            Conflict: the session is no longer active.
        """
        changes: Changes = {Field.VERSION: version}
        is_active = Attr(Field.CHAT) == active.chat
        try:
            item = await self._table.update(_active_row(active), changes, "new", if_=is_active)
        except ConditionFailed:
            raise Conflict(SESSION_ENDED) from None
        return decode_session(item)

    # Lookup by chat, and lists

    async def find_by_chat(self, chat: ChatId) -> CompanionSession | None:
        """Return the session of a chat, active or ended.

        Guarantees:
            A returned session is current. None is not reliable: a session that has just started may
            not be in the index yet.
            Cost: a Query on the index, and one GetItem (active session) or two (ended session).
        """
        span = Span(CHAT_SESSION, chat, SESSION_CHAT_INDEX)
        rows = await self._table.query(span, limit=1)
        if not rows:
            return None
        user, sort = UserId(get_text(rows[0], Field.PK)), get_text(rows[0], Field.SK)
        name, is_old, _ = sort.partition(OLD)
        companion = CompanionId(UserId(name if is_old else sort.removeprefix(ACTIVE_PREFIX)))
        return await self.find(user, companion, chat)

    async def find(
        self, user: UserId, companion: CompanionId, chat: ChatId
    ) -> CompanionSession | None:
        """Return a session, active or ended. Strongly consistent."""
        active = await self.find_active(user, companion)
        if active is not None and active.chat == chat:
            return active
        # A session ends in one transaction: if it is no longer active, it has an ended item.
        return await self.find_old(user, companion, chat)

    async def list_all(
        self, user: UserId, *, limit: int, start: Token | None = None
    ) -> QueryPage[CompanionSession]:
        """Return a page of a user's sessions: first active ones, then ended ones.

        Ended sessions are sorted by companion and then by time.

        Guarantees:
            Strongly consistent. Cost: one Query.
        """
        return await self._list(Span(CHAT_SESSION, user), limit, start)

    async def list_old(
        self, user: UserId, companion: CompanionId, *, limit: int, start: Token | None = None
    ) -> QueryPage[CompanionSession]:
        """Return a page of a user's ended sessions with one companion, newest first."""
        span = Span(CHAT_SESSION, user, prefix=companion + OLD)
        return await self._list(span, limit, start, is_newest_first=True)

    async def remove_all(self, user: UserId) -> int:
        """Delete all of a user's items in the table; return how many were deleted. Idempotent."""
        removed = 0
        while rows := await self._table.query(Span(CHAT_SESSION, user)):
            for row in rows:
                await self._table.delete({name: row[name] for name in CHAT_SESSION.key.names})
            removed += len(rows)
        return removed

    async def _list(
        self, span: Span, limit: int, start: Token | None, *, is_newest_first: bool = False
    ) -> QueryPage[CompanionSession]:
        query = self._table.build_query(span, is_newest_first=is_newest_first)

        async def load(rows: list[Item]) -> list[CompanionSession | None]:
            return [
                decode_session(row)
                if ACTIVE_PREFIX in (sort := get_text(row, Field.SK)) or OLD in sort
                else None
                for row in rows
            ]

        return await read_page(self._table.client, span, query, load, limit=limit, start=start)

    async def _end(
        self,
        old: CompanionSession,
        change: Action,
        successor: CompanionSession | None = None,
    ) -> CompanionSession:
        """Write the ended item and apply `change` to the active item, in one transaction."""
        put = self._table.put_action(encode_session(old))
        try:
            await self._table.client.transact([put, change, self._close_chat(old)])
        except ConditionFailed:
            # If the stored item equals `old`, an earlier attempt of this call wrote it, but
            # DynamoDB's reply was lost.
            # An item from another request normally has another end time.
            earlier = await self.find_old(old.user, old.companion, old.chat)
            if earlier != old:
                raise LostRace(SESSION_CHANGED) from None
            # Another request may have ended the session with the same end time (ms). In that case,
            # `successor` has not been stored.
            if successor is not None and (
                await self.find(old.user, old.companion, successor.chat) is None
            ):
                raise LostRace(SESSION_CHANGED) from None
        return old

    def _close_chat(self, old: CompanionSession) -> Action:
        assert old.delete_time is not None, "the session has ended"
        key = chat_key(old.chat)
        is_open = Attr(DirectoryField.VERSION).exists & Attr(DirectoryField.ENDED).is_absent
        changes: Changes = {
            DirectoryField.ENDED: old.delete_time,
            DirectoryField.VERSION: Add(1),
        }
        return self._directory.update_action((key, key), changes, if_=is_open)

    async def _find(self, user: UserId, sort: str) -> CompanionSession | None:
        item = await self._table.find((user, sort))
        return None if item is None else decode_session(item)


def _active_row(active: CompanionSession) -> Key:
    return active.user, active_key(active.companion)


def _is_unchanged(active: CompanionSession) -> Condition:
    return (Attr(Field.CHAT) == active.chat) & (Attr(Field.VERSION) == active.ai_version)
