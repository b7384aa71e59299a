"""All of a user's messages in the warm and cold tiers, for data export and erasure.

The warm tier is read first. Before an entry leaves the warm tier, it is archived and listed in the
user's archive index.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from chatserver.domain.archive_segments import TRAIL_PREFIX
from chatserver.domain.ids import ChatId
from chatserver.protocol.frames import Message
from chatserver.service.history.cold_log import ColdLog
from chatserver.warm.archive.manifests import Manifests


class UserEntries(Protocol):
    """A user's entries in the warm tier; the `privacy` feature implements this."""

    def iter_entries(self, user: str) -> AsyncIterator[list[Message]]:
        """Yield pages of entries that the user sent, from an index that may lag behind."""

    async def find_entry(self, chat: str, ts: int) -> Message | None:
        """Return a chat's warm-tier entry with this ts, or None."""

    async def list_names(self, user: str, prefix: str) -> list[str]:
        """Return the sort keys of the user's items that start with `prefix`, without the prefix."""


class UserMessages:
    """Reads all of a user's messages."""

    def __init__(self, rows: UserEntries, manifests: Manifests, cold: ColdLog) -> None:
        self._rows = rows
        self._manifests = manifests
        self._cold = cold

    async def iter_entries(self, user: str) -> AsyncIterator[list[Message]]:
        """Yield pages of all entries that the user sent, each in its current version.

        Warm-tier entries come first, from an index that may lag behind, then archived entries by
        segment. An entry that is archived during the call may be yielded twice.
        """
        tops: dict[str, int] = {}
        # Archived entries that this call has yielded from the warm tier.
        yielded: set[tuple[str, int]] = set()
        async for page in self._rows.iter_entries(user):
            for entry in page:
                if entry.chat not in tops:
                    tops[entry.chat] = (await self._cold.get_top(entry.chat)).seq
                if entry.seq <= tops[entry.chat]:
                    yielded.add((entry.chat, entry.seq))
            yield page
        for chat, seq in await self._list_archived(user):
            for segment in await self._manifests.list_covering(chat, seq, seq):
                entries = await self._cold.read(chat, segment.first, segment.last)
                sent = [entry for entry in entries if entry.sender == user]
                if new := [entry for entry in sent if (chat, entry.seq) not in yielded]:
                    yield new

    async def list_chats(self, user: str) -> list[ChatId]:
        """Return the chats whose archives have entries from the user."""
        return sorted({chat for chat, _ in await self._list_archived(user)})

    async def _list_archived(self, user: str) -> list[tuple[ChatId, int]]:
        archived = []
        for name in await self._rows.list_names(user, TRAIL_PREFIX):
            chat, _, seq = name.partition("#")
            archived.append((ChatId(chat), int(seq)))
        return archived

    async def find_entry(self, chat: str, ts: int) -> Message | None:
        """Return the current version of a chat's entry with this ts, or None."""
        entry = await self._rows.find_entry(chat, ts)
        return await self._cold.find_at(chat, ts) if entry is None else entry
