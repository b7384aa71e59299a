"""All that a user said, in the warm and in the cold tier, for who copies it or takes it away.

The warm tier is read first: an entry is in the archive, and the user's trail says so, before it
leaves the warm tier.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from chatserver.domain.ids import ChatId
from chatserver.domain.segments import TRAIL_PREFIX, ArchiveTop, Segment
from chatserver.protocol.frames import Message


class PersonalRows(Protocol):
    """What the warm tier has of a user."""

    def iter_entries(self, user: str) -> AsyncIterator[list[Message]]: ...

    async def find_entry(self, chat: str, ts: int) -> Message | None: ...

    async def list_names(self, user: str, prefix: str) -> list[str]: ...


class Covering(Protocol):
    """What the archive has of each chat."""

    async def list_covering(self, chat: str, first: int, last: int) -> list[Segment]: ...


class ColdEntries(Protocol):
    """Entries of the archive."""

    async def get_top(self, chat: str) -> ArchiveTop: ...

    async def read(self, chat: str, first: int, last: int) -> list[Message]: ...

    async def find_at(self, chat: str, ts: int) -> Message | None: ...


class Said:
    """Reads."""

    def __init__(self, rows: PersonalRows, manifests: Covering, cold: ColdEntries) -> None:
        self._rows = rows
        self._manifests = manifests
        self._cold = cold

    async def iter_entries(self, user: str) -> AsyncIterator[list[Message]]:
        """Yield all entries that the user sent, by page, each as it is now.

        Those of the warm tier, which an index leads to that lags behind, then those of the archive,
        a segment a page. What moves to the archive meanwhile comes twice, nothing else does.
        """
        tops: dict[str, int] = {}
        late: set[tuple[str, int]] = set()  # of the archive, and in the warm tier again or still
        async for page in self._rows.iter_entries(user):
            for entry in page:
                if entry.chat not in tops:
                    tops[entry.chat] = (await self._cold.get_top(entry.chat)).seq
                if entry.seq <= tops[entry.chat]:
                    late.add((entry.chat, entry.seq))
            yield page
        for chat, seq in await self._list_trails(user):
            for segment in await self._manifests.list_covering(chat, seq, seq):
                entries = await self._cold.read(chat, segment.first, segment.last)
                mine = [entry for entry in entries if entry.sender == user]
                if fresh := [entry for entry in mine if (chat, entry.seq) not in late]:
                    yield fresh

    async def list_chats(self, user: str) -> list[ChatId]:
        """Return the chats of whose archive some was the user's."""
        return sorted({chat for chat, _ in await self._list_trails(user)})

    async def _list_trails(self, user: str) -> list[tuple[ChatId, int]]:
        trails = []
        for name in await self._rows.list_names(user, TRAIL_PREFIX):
            chat, _, seq = name.partition("#")
            trails.append((ChatId(chat), int(seq)))
        return trails

    async def find_entry(self, chat: str, ts: int) -> Message | None:
        """Return an entry, as it is now."""
        found = await self._rows.find_entry(chat, ts)
        return await self._cold.find_at(chat, ts) if found is None else found
