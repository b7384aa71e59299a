"""Use cases for users to read, delete and turn off what a companion remembers about them."""

from __future__ import annotations

from collections.abc import Callable

from chatserver.domain.clock import Clock, get_now_ms
from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, UserId
from chatserver.errors import NotFound
from chatserver.features.companions.user_memory import (
    Entry,
    UserMemory,
    drop_all,
    drop_entry,
    drop_session,
    set_enabled,
)
from chatserver.features.companions.warm.companions import CompanionRows
from chatserver.features.companions.warm.user_memories import MemoryRows


class Memories:
    """Use cases for users to read and change what companions remember about them.

    Changes raise NotFound if there is no such companion, and LostRace if there are too many
    concurrent changes.
    """

    def __init__(self, rows: MemoryRows, companions: CompanionRows, clock: Clock) -> None:
        self._rows = rows
        self._companions = companions
        self._clock = clock

    async def get(self, user: UserId, companion: CompanionId) -> UserMemory:
        """Return what a companion remembers about a user; empty if the companion is unknown."""
        return await self._rows.get(user, companion)

    async def delete_entry(self, user: UserId, companion: CompanionId, id_: str) -> None:
        """Delete one entry. Raises NotFound."""
        memory = await self._rows.get(user, companion)
        if all(entry.id != id_ for entry in memory.entries):
            raise NotFound("entry: does not exist")
        await self._rows.update(user, companion, lambda stored: drop_entry(stored, id_))

    async def delete_session(self, user: UserId, companion: CompanionId, chat: ChatId) -> None:
        """Delete the entries from one session, and create no more from it. Idempotent."""
        await self._update(user, companion, lambda stored: drop_session(stored, chat))

    async def delete_all(self, user: UserId, companion: CompanionId) -> None:
        """Delete all entries, and create none from messages before this call. Idempotent."""
        now_ms = get_now_ms(self._clock)
        await self._update(user, companion, lambda stored: drop_all(stored, now_ms))

    async def set_enabled(self, user: UserId, companion: CompanionId, *, is_on: bool) -> UserMemory:
        """Turn memory on or off. While it is off, entries are kept but not used."""
        now_ms = get_now_ms(self._clock)
        return await self._update(
            user, companion, lambda stored: set_enabled(stored, is_on, now_ms)
        )

    async def close(self, user: UserId, companion: CompanionId) -> None:
        """Delete all entries of an erased user and turn memory off. Idempotent."""
        now_ms = get_now_ms(self._clock)

        def change(stored: UserMemory) -> UserMemory:
            if not stored.is_on and not stored.entries:
                return stored
            return set_enabled(drop_all(stored, now_ms), False, now_ms)

        await self._rows.update(user, companion, change)

    def list_current(self, memory: UserMemory) -> list[Entry]:
        """Return the entries that have not expired, newest first."""
        return memory.list_current(get_now_ms(self._clock))

    async def _update(
        self, user: UserId, companion: CompanionId, change: Callable[[UserMemory], UserMemory]
    ) -> UserMemory:
        if (await self._rows.get(user, companion)).rev == 0:
            # Memories are created only for companions that exist. After a companion is deleted, its
            # memories remain, and users can still change them.
            await self._companions.get_newest(companion)
        return await self._rows.update(user, companion, change)
