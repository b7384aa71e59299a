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

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any, Final

import msgspec

from chatserver.config import Warm
from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, UserId
from chatserver.domain.jitter import add_jitter
from chatserver.errors import CorruptData, LostRace
from chatserver.features.companions.model import CompanionSession
from chatserver.features.companions.user_memory import Entry, UserMemory
from chatserver.features.companions.warm.sessions import active_key, old_key
from chatserver.warm.chats.directory_items import row_key
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.item_attributes import find_number, get_number, get_text
from chatserver.warm.dynamo.items import find_item
from chatserver.warm.schema.tables import CHAT_SESSION
from chatserver.warm.schema.tables import SessionField as Field

SUFFIX: Final = "#MEMORY"
TRIES_MAX: Final = 6
RETRY_S: Final = 0.01  # the wait before retry N (1, 2, 3 …) is this times 2^N


class _Entries(msgspec.Struct, frozen=True):
    entries: list[Entry]
    forgotten: list[str]


_decode_entries = msgspec.json.Decoder(_Entries).decode
_decode_cursors = msgspec.json.Decoder(dict[str, int]).decode


def encode_memory(memory: UserMemory) -> Item:
    saved = _Entries([*memory.entries], [*memory.forgotten])
    item: Item = {
        **memory_key(memory.user, memory.companion),
        Field.ENTRIES: {"S": msgspec.json.encode(saved).decode()},
        Field.CURSORS: {"S": msgspec.json.encode(memory.cursors).decode()},
        Field.SINCE: {"N": str(memory.since)},
        Field.REV: {"N": str(memory.rev)},
    }
    if not memory.is_on:
        item[Field.OFF] = {"BOOL": True}
    elif memory.entries:
        newest = max(entry.expires for entry in memory.entries)
        item[Field.TTL] = {"N": str(newest // 1000 + 1)}
    return item


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
        UserId(user),
        CompanionId(UserId(companion)),
        tuple(stored.entries),
        {ChatId(chat): upto for chat, upto in cursors.items()},
        tuple(stored.forgotten),
        find_number(item, Field.SINCE) or 0,
        not item.get(Field.OFF, {}).get("BOOL", False),
        get_number(item, Field.REV),
    )


class MemoryRows:
    """Reads and writes memory items."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._table = CHAT_SESSION.name_in(settings)

    async def get(self, user: UserId, companion: CompanionId) -> UserMemory:
        """Return a memory; empty if none is stored. Strongly consistent. Cost: one GetItem."""
        item = await find_item(self._client, self._table, memory_key(user, companion))
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
        for number in range(TRIES_MAX):
            if number:
                await asyncio.sleep(add_jitter(RETRY_S * 2**number))
            before = await self.get(user, companion)
            after = change(before)
            if after == before:
                return before
            after = dataclasses.replace(after, rev=before.rev + 1)
            try:
                await self._put(after, session)
            except ConditionFailed:
                continue
            return after
        raise LostRace("memory: changed by a concurrent request; try again")

    async def _put(self, memory: UserMemory, session: CompanionSession | None) -> None:
        put: dict[str, Any] = {
            "TableName": self._table,
            "Item": encode_memory(memory),
            "ExpressionAttributeNames": {"#rev": Field.REV},
        }
        if memory.rev > 1:
            put["ConditionExpression"] = "#rev = :before"
            put["ExpressionAttributeValues"] = {":before": {"N": str(memory.rev - 1)}}
        else:
            put["ConditionExpression"] = "attribute_not_exists(#rev)"
        if memory.rev > 1 or session is None:
            await self._client.call("put_item", put)
            return
        is_old = session.delete_time is not None
        sort = old_key(session.companion, session.chat)
        check = {
            "TableName": self._table,
            "Key": row_key(session.user, sort if is_old else active_key(session.companion)),
            "ConditionExpression": "#chat = :chat",
            "ExpressionAttributeNames": {"#chat": Field.CHAT},
            "ExpressionAttributeValues": {":chat": {"S": session.chat}},
        }
        actions = [{"Put": put}, {"ConditionCheck": check}]
        await self._client.call("transact_write_items", {"TransactItems": actions})


def memory_key(user: str, companion: str) -> Item:
    return row_key(user, f"{companion}{SUFFIX}")
