"""All messages of one user in the warm and the cold tier, for data export and erasure.

The warm tier is read first: an entry is archived, and listed in the user's archive index, before it
leaves the warm tier.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from chatserver.domain.archive_segments import TRAIL_PREFIX, ArchiveTop, Segment
from chatserver.domain.ids import ChatId
from chatserver.protocol.frames import Message


class PersonalRows(Protocol):
    """Warm-tier entries of a user."""

    def iter_entries(self, user: str) -> AsyncIterator[list[Message]]: ...

    async def find_entry(self, chat: str, ts: int) -> Message | None: ...

    async def list_names(self, user: str, prefix: str) -> list[str]: ...


class Covering(Protocol):
    """Archive manifests of chats."""

    async def list_covering(self, chat: str, first: int, last: int) -> list[Segment]: ...


class ColdEntries(Protocol):
    """Entries in the archive."""

    async def get_top(self, chat: str) -> ArchiveTop: ...

    async def read(self, chat: str, first: int, last: int) -> list[Message]: ...

    async def find_at(self, chat: str, ts: int) -> Message | None: ...


class UserMessages:
    """Reads the messages of a user."""

    def __init__(self, rows: PersonalRows, manifests: Covering, cold: ColdEntries) -> None:
        self._rows = rows
        self._manifests = manifests
        self._cold = cold

    async def iter_entries(self, user: str) -> AsyncIterator[list[Message]]:
        """Yield all entries that the user sent, page by page, each in its current state.

        First the warm tier, through an index that lags behind, then the archive, one segment per
        page. Only entries that move to the archive meanwhile are yielded twice.
        """
        tops: dict[str, int] = {}
        late: set[tuple[str, int]] = set()  # archived entries that the warm tier has, too
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
        """Return the chats whose archive has entries of the user."""
        return sorted({chat for chat, _ in await self._list_trails(user)})

    async def _list_trails(self, user: str) -> list[tuple[ChatId, int]]:
        trails = []
        for name in await self._rows.list_names(user, TRAIL_PREFIX):
            chat, _, seq = name.partition("#")
            trails.append((ChatId(chat), int(seq)))
        return trails

    async def find_entry(self, chat: str, ts: int) -> Message | None:
        """Return the current version of an entry."""
        found = await self._rows.find_entry(chat, ts)
        return await self._cold.find_at(chat, ts) if found is None else found
