"""The cold part of a chat's history: segments, with what changed since laid over them.

::

    manifest ─► segments ─► items that lie over them ─► manifest again: is it the same?

An archived entry that changes has an item in the warm tier again until the archive worker has
written it into its segment: the item counts, unless the segment has a newer `rev`. The manifest is
read before and after the items: so what left the warm tier meanwhile is not missed, and a text that
was deleted does not come back from a segment that has been replaced. Segments themselves come from
a cache; that they never change is what makes this safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import structlog

from chatserver.domain.clock import Clock
from chatserver.domain.segments import ArchiveTop, Segment
from chatserver.errors import ConfigError, CorruptData, Unavailable
from chatserver.protocol import expiry
from chatserver.protocol.frames import Message
from chatserver.telemetry import metrics

log = structlog.get_logger()

TRIES_MAX = 5


class ManifestRows(Protocol):
    """What the archive has of each chat."""

    async def get_top(self, chat: str) -> ArchiveTop: ...

    async def list_covering(self, chat: str, first: int, last: int) -> list[Segment]: ...

    async def find_at(self, chat: str, ts: int) -> Segment | None: ...

    async def note_late(self, chat: str, at_ms: int) -> None: ...


class SegmentReader(Protocol):
    """The objects of segments."""

    async def read(self, segment: Segment) -> Sequence[Message]: ...


class LateItems(Protocol):
    """The warm tier, by time."""

    async def list_between(
        self, chat: str, from_ts: int, to_ts: int, limit: int | None = None
    ) -> list[Message]: ...


def lay_over(entries: Sequence[Message], late: Sequence[Message]) -> list[Message]:
    """Return archived entries with what lies over them."""
    newer = {entry.seq: entry for entry in late}
    return [
        item if (item := newer.get(entry.seq)) is not None and item.rev >= entry.rev else entry
        for entry in entries
    ]


class ColdLog:
    """Reads the archive."""

    def __init__(
        self, manifests: ManifestRows, segments: SegmentReader, late: LateItems, clock: Clock
    ) -> None:
        self._manifests = manifests
        self._segments = segments
        self._late = late
        self._clock = clock

    async def get_top(self, chat: str) -> ArchiveTop:
        """Return how far a chat is archived."""
        return await self._manifests.get_top(chat)

    async def read(self, chat: str, first: int, last: int) -> list[Message]:
        """Return the archived entries of seqs ``[first, last]``, all of them, in rising seq.

        Guarantees:
            As now: with every change that the warm tier has learnt of before the call.
            Cost: three Queries, of which one is of the entries' time, and what S3 has to send.

        Raises:
            Unavailable: they cannot be read now, or are not in the archive.
        """
        for number in range(TRIES_MAX):
            rows = await self._manifests.list_covering(chat, first, last)
            try:
                found = await self._read(rows, chat, first, last)
            except (CorruptData, ConfigError) as exc:
                # An object may have been replaced since its row was read.
                if number + 1 < TRIES_MAX and rows != await self._manifests.list_covering(
                    chat, first, last
                ):
                    continue
                log.error("cold.gap", chat=chat, first=first, last=last, why=exc.message)
                metrics.HISTORY_GAPS.labels("cold").inc()
                raise Unavailable(f"history: {first} to {last} cannot be read now") from exc
            if rows == await self._manifests.list_covering(chat, first, last):
                return found
        raise Unavailable(f"history: {first} to {last} keep changing, try again")

    async def _read(
        self, rows: Sequence[Segment], chat: str, first: int, last: int
    ) -> list[Message]:
        entries: list[Message] = []
        for row in rows:
            held = await self._segments.read(row)
            low, high = max(first, row.first), min(last, row.last)
            entries += held[low - row.first : high - row.first + 1]
        if [entry.seq for entry in entries] != list(range(first, last + 1)):
            raise CorruptData(f"archive of {chat}: segments leave a hole in {first} to {last}")
        late = await self._late.list_between(chat, entries[0].ts, entries[-1].ts)
        now_s = self._clock.time()
        return [expiry.as_of(entry, now_s) for entry in lay_over(entries, late)]

    # for who changes entries

    async def find_at(self, chat: str, ts: int) -> Message | None:
        """Return the archived entry of a time, as it is now.

        Raises:
            Unavailable: S3 does not answer.
            CorruptData: what the archive says of it is not there.
        """
        segment = await self._manifests.find_at(chat, ts)
        if segment is None:
            return None
        held = await self._segments.read(segment)
        seq = next((entry.seq for entry in held if entry.ts == ts), None)
        return None if seq is None else (await self.read(chat, seq, seq))[0]

    async def note_late(self, chat: str) -> None:
        """Say that an archived entry of the chat is going to change."""
        await self._manifests.note_late(chat, int(self._clock.time() * 1000))
