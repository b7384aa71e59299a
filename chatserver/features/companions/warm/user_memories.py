"""Memory items: one item per user and companion in the `chat_session` table.

    PK "<user>"  SK "<ai>#MEMORY"  entries S  cursors S (both JSON)  since N  off BOOL?  rev N
    expires_at N?

One item holds a companion's entire memory of a user (up to 64 entries of 500 characters each). A
write is conditional on the `rev` that was read. If several processes write concurrently, one
succeeds and the others read again. The item expires with the last of its entries, unless the user
has turned the memory off.

A worker creates the item only if the session still exists. An erasure deletes the sessions, so a
delayed worker cannot store a memory of an erased user.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

import msgspec

from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, UserId
from chatserver.errors import CorruptData, LostRace
from chatserver.features.companions.model import CompanionSession
from chatserver.features.companions.user_memory import Entry, UserMemory
from chatserver.features.companions.warm.sessions import active_key, old_key
from chatserver.warm.chats.directory_items import row_key
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.conditions import Attr, encode_item
from chatserver.warm.dynamo.item_attributes import find_number, get_number, get_text
from chatserver.warm.dynamo.optimistic_writes import retry_lost_races
from chatserver.warm.dynamo.table import Table
from chatserver.warm.schema.tables import CHAT_SESSION
from chatserver.warm.schema.tables import SessionField as Field

SUFFIX: Final = "#MEMORY"
TRIES_MAX: Final = 6


class _Entries(msgspec.Struct, frozen=True):
    entries: list[Entry]
    forgotten: list[str]


_decode_entries = msgspec.json.Decoder(_Entries).decode
_decode_cursors = msgspec.json.Decoder(dict[str, int]).decode


def encode_memory(memory: UserMemory) -> Item:
    saved = _Entries([*memory.entries], [*memory.forgotten])
    newest = max((entry.expires for entry in memory.entries), default=None)
    return memory_key(memory.user, memory.companion) | encode_item(
        {
            Field.ENTRIES: msgspec.json.encode(saved).decode(),
            Field.CURSORS: msgspec.json.encode(memory.cursors).decode(),
            Field.SINCE: memory.since,
            Field.REV: memory.rev,
            Field.OFF: None if memory.is_on else True,
            Field.TTL: newest // 1000 + 1 if memory.is_on and newest is not None else None,
        }
    )


def decode_memory(item: Item) -> UserMemory:
    """Decode a memory item. Raises CorruptData."""
    user, companion = get_text(item, Field.PK), get_text(item, Field.SK).removesuffix(SUFFIX)
    try:
        text = get_text(item, Field.ENTRIES)
        # The text is empty if its encryption key has been deleted.
        stored = _decode_entries(text) if text else _Entries([], [])
        cursors = _decode_cursors(get_text(item, Field.CURSORS))
    except msgspec.MsgspecError as exc:
        raise CorruptData(
            f"table chat_session: memory of user {user} in {companion} is invalid: {exc}"
        ) from exc
    return UserMemory(
        user=UserId(user),
        companion=CompanionId(UserId(companion)),
        entries=tuple(stored.entries),
        cursors={ChatId(chat): upto for chat, upto in cursors.items()},
        forgotten=tuple(stored.forgotten),
        since=find_number(item, Field.SINCE) or 0,
        is_on=not item.get(Field.OFF, {}).get("BOOL", False),
        rev=get_number(item, Field.REV),
    )


class MemoryRows:
    """Reads and writes memory items."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = Table(client, CHAT_SESSION)

    async def get(self, user: UserId, companion: CompanionId) -> UserMemory:
        """Return a memory; empty if none is stored. Strongly consistent. Cost: one GetItem."""
        item = await self._table.find(memory_key(user, companion))
        return UserMemory(user, companion) if item is None else decode_memory(item)

    async def update(
        self,
        user: UserId,
        companion: CompanionId,
        change: Callable[[UserMemory], UserMemory],
        session: CompanionSession | None = None,
    ) -> UserMemory:
        """Apply `change` to a memory and return the result; write nothing if it is unchanged.

        With `session`, a new memory is stored only if this session exists.

        Guarantees:
            Atomic: the result replaces the memory that `change` received. `change` may be called
                several times.

        Raises:
            LostRace: there were too many concurrent writes, or the session no longer exists.
        """

        async def attempt() -> UserMemory:
            before = await self.get(user, companion)
            after = change(before)
            if after == before:
                return before
            after = dataclasses.replace(after, rev=before.rev + 1)
            await self._put(after, session)
            return after

        error = LostRace("memory: changed by a concurrent request; try again")
        return await retry_lost_races(attempt, error, attempts_max=TRIES_MAX)

    async def _put(self, memory: UserMemory, session: CompanionSession | None) -> None:
        is_next = Attr(Field.REV).matches(memory.rev - 1 or None)
        item = encode_memory(memory)
        if memory.rev > 1 or session is None:
            await self._table.put(item, if_=is_next)
            return
        is_old = session.delete_time is not None
        sort = old_key(session.companion, session.chat)
        key = session.user, sort if is_old else active_key(session.companion)
        check = self._table.check_action(key, if_=Attr(Field.CHAT) == session.chat)
        await self._table.client.transact([self._table.put_action(item, if_=is_next), check])


def memory_key(user: str, companion: str) -> Item:
    return row_key(user, f"{companion}{SUFFIX}")
