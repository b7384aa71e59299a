"""Export unit reader: reads the entries of a unit from the archive or the warm tier.

A unit is a range of a chat's entries (`chatserver.features.analytics.model`). Its *version* is a
digest of the tags of its archive segments, the chat's properties and whether message text is
exported. If some entries are not archived, the version is a digest of the rows.

A unit whose version has not changed need not be exported again, unless entries of other units have
changed its messages: the version of an archived unit does not cover these entries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import attrs

from chatserver.errors import NotFound, Unavailable
from chatserver.features.analytics.model import (
    Changes,
    ChatFacts,
    MessageRow,
    Unit,
    compute_digest,
    list_changes,
    make_rows,
)
from chatserver.features.analytics.warm import ExportRows
from chatserver.protocol.frames import PAGE_MAX, Message
from chatserver.service.history.cold_log import ColdLog
from chatserver.service.history.warm_and_cold_log import WarmAndColdLog
from chatserver.warm.archive.manifests import Manifests
from chatserver.warm.chats.directory import Directory

NO_CHANGES: Final[Changes] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class UnitRows:
    """The current rows of a unit (a range of entries).

    `changes`: entries of other units that change messages in it.
    """

    unit: Unit
    rows: Sequence[MessageRow]
    sha256: str
    version: str
    changes: Changes


@attrs.define(eq=False, repr=False, kw_only=True)
class ExportUnitReader:
    """Reads units (exported ranges of a chat's entries)."""

    _state: ExportRows
    _tiers: WarmAndColdLog
    _cold: ColdLog
    _manifests: Manifests
    _directory: Directory
    _with_bodies: bool

    async def load(self, unit: Unit, changes: Changes = NO_CHANGES) -> UnitRows:
        """Return the current rows of a unit (a range of entries).

        Raises:
            Unavailable: some of the unit's entries cannot be read now.
        """
        facts = await self._read_facts(unit)
        version = await self._find_archived_version(unit, facts)
        if version:
            entries = await self._cold.read(unit.chat, unit.first, unit.last)
        else:
            entries = await self.read(unit)
        # Apply the unit's own edits and deletions, too: the warm tier stores an edit or deletion
        # shortly before it changes the item of the message.
        own = list_changes(entries)
        merged = {seq: [*own.get(seq, ()), *changes.get(seq, ())] for seq in {*own, *changes}}
        rows = make_rows(entries, facts, merged, with_bodies=self._with_bodies)
        sha256 = compute_digest(rows)
        return UnitRows(unit, rows, sha256, version or sha256, changes)

    async def find_version(self, unit: Unit, changes: Changes = NO_CHANGES) -> str:
        """Return the version of a unit (see the module docstring).

        For a unit that is not archived, this costs a `load`.
        """
        archived = await self._find_archived_version(unit, await self._read_facts(unit))
        return archived or (await self.load(unit, changes)).version

    async def _read_facts(self, unit: Unit) -> ChatFacts:
        try:
            chat = await self._directory.get_chat(unit.chat)
        except NotFound:
            return ChatFacts()
        if chat.kind != "direct":
            return ChatFacts(chat.kind)
        users = sorted(chat.users)
        return ChatFacts(chat.kind, users, sorted(await self._state.find_erased(users)))

    async def _find_archived_version(self, unit: Unit, facts: ChatFacts) -> str:
        """Return the version of an archived unit, or "" if some of its entries are not archived."""
        segments = await self._manifests.list_covering(unit.chat, unit.first, unit.last)
        if not segments or segments[-1].last < unit.last or segments[0].first > unit.first:
            return ""
        tags = [(segment.first, segment.last, segment.tag) for segment in segments]
        return compute_digest((tags, facts, self._with_bodies))

    async def read(self, unit: Unit) -> list[Message]:
        """Return the entries in the range of a unit. Raises Unavailable if some cannot be read."""
        entries = await self.list_new(unit.chat, unit.first - 1, unit.last - unit.first + 1)
        if len(entries) < unit.last - unit.first + 1:
            missing = unit.first + len(entries)
            raise Unavailable(
                f"analytics: chat {unit.chat}: entries {missing} to {unit.last} cannot be read now"
            )
        return entries

    async def list_new(self, chat: str, after: int, limit: int) -> list[Message]:
        """Return up to `limit` stored entries with a seq above `after`, from any tier."""
        entries: list[Message] = []
        ts: int | None = None
        while len(entries) < limit:
            page_max = min(PAGE_MAX, limit - len(entries))
            page = await self._tiers.list_after(chat, after, page_max, ts)
            if not page:
                break
            entries += page
            after, ts = page[-1].seq, page[-1].ts
        return entries
