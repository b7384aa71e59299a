"""The warm and the cold tier, read as one log.

Entries move from the warm to the cold tier while they are read. They reach the archive before they
leave the warm tier, so the warm tier is read first, and the archive for the rest. The archived
position of a chat only rises; caching it avoids useless reads of the warm tier. Restored entries
(`chatserver restore`) are read from the warm tier. The start and the end of a restore take effect
within `KNOWN_S`, and the archive supplies what the restore lacks.
"""

from __future__ import annotations

import collections
from typing import Final, Literal, NamedTuple, Protocol

from chatserver.domain.archive_segments import ARCHIVED_KIND, ArchiveTop
from chatserver.domain.clock import Clock, SystemClock
from chatserver.errors import Unavailable
from chatserver.protocol.frames import Message

Tier = Literal["warm", "cold"]

TOPS_MAX = 50_000  # chats whose archive position is cached
KNOWN_S: Final = 10.0  # how long a cached list of restored ranges is used


class WarmMessages(Protocol):
    """Messages in the warm tier."""

    async def find_head(self, chat: str) -> Message | None: ...

    async def list_before(
        self, chat: str, before: int | None, limit: int, ts_hint: int | None = None
    ) -> list[Message]: ...

    async def list_after(
        self, chat: str, after: int, limit: int, ts_hint: int | None = None
    ) -> list[Message]: ...

    async def fill_hole(self, chat: str, seq: int, ts: int) -> bool: ...


class ColdMessages(Protocol):
    """Messages in the cold tier."""

    async def get_top(self, chat: str) -> ArchiveTop: ...

    async def read(self, chat: str, first: int, last: int) -> list[Message]: ...


class Run(NamedTuple):
    """Contiguous messages in ascending seq, and the coldest tier they come from."""

    messages: list[Message]
    tier: Tier


class _Ask(NamedTuple):
    """A read of at most `limit` entries from `seq` on; `ts` is a hint, see `list_before`."""

    seq: int
    limit: int
    ts: int | None
    is_down: bool


class _Known(NamedTuple):
    """A cached archive position, and when it was read (monotonic, s)."""

    top: ArchiveTop
    at: float


class OlderTiers:
    """Reads by seq; see `chatserver.warm.messages.store` for the guarantees of its methods."""

    def __init__(self, warm: WarmMessages, cold: ColdMessages, clock: Clock | None = None) -> None:
        self._warm = warm
        self._cold = cold
        self._clock = clock or SystemClock()
        self._tops: collections.OrderedDict[str, _Known] = collections.OrderedDict()

    async def find_head(self, chat: str) -> Message | None:
        """Return the newest entry of a chat, or a placeholder with its seq and ts."""
        # In this order: an entry that leaves the warm tier in between is archived before.
        head = await self._warm.find_head(chat)
        top = await self._cold.get_top(chat)
        self._learn(chat, top)
        if top.seq > (head.seq if head is not None else 0):
            return Message(top.seq, top.ts, chat, "-", "-", "-", ARCHIVED_KIND, "", deleted=True)
        return head

    async def list_before(
        self, chat: str, before: int | None, limit: int, ts_hint: int | None = None
    ) -> list[Message]:
        """Return the contiguous entries that end just before seq `before`."""
        return (await self.read_run(chat, before, None, limit, ts_hint)).messages

    async def list_after(
        self, chat: str, after: int, limit: int, ts_hint: int | None = None
    ) -> list[Message]:
        """Return the contiguous entries that begin just after seq `after`."""
        return (await self.read_run(chat, None, after, limit, ts_hint)).messages

    async def get_archived_ts(self, chat: str) -> int:
        """Return the ts of the newest archived entry; 0 if there is none."""
        top = await self._cold.get_top(chat)
        self._learn(chat, top)
        return top.ts if top.seq else 0

    async def fill_hole(self, chat: str, seq: int, ts: int) -> bool:
        """Write a tombstone for an entry that no tier has; return False if it is archived."""
        if seq <= await self._get_top(chat):
            return False
        return await self._warm.fill_hole(chat, seq, ts)

    async def read_run(
        self, chat: str, before: int | None, after: int | None, limit: int, ts: int | None
    ) -> Run:
        """Return the contiguous entries just after seq `after`, else just before `before`.

        Guarantees:
            Contiguous and adjacent to the requested position, or empty.
            Entries that move to the archive meanwhile are neither missed nor returned twice.

        Raises:
            Unavailable: a tier that has the first of them does not respond.
        """
        if after is not None:
            return await self._read(chat, after + 1, limit, ts, is_down=False)
        if before is None:
            head = await self.find_head(chat)
            if head is None:
                return Run([], "warm")
            before, ts = head.seq + 1, head.ts + 1
        return await self._read(chat, before - 1, limit, ts, is_down=True)

    async def _read(self, chat: str, seq: int, limit: int, ts: int | None, *, is_down: bool) -> Run:
        """Return the contiguous entries that begin with `seq`, tier by tier, in one direction."""
        run = Run([], "warm")
        while (left := limit - len(run.messages)) > 0 and seq >= 1:
            ask = _Ask(seq, left, ts, is_down)
            piece = await self._read_piece(chat, ask, has_some=bool(run.messages))
            if not piece.messages:
                break
            both = (piece, run) if is_down else (run, piece)
            tier: Tier = "cold" if "cold" in (run.tier, piece.tier) else "warm"
            run = Run([*both[0].messages, *both[1].messages], tier)
            edge = run.messages[0 if is_down else -1]
            seq, ts = edge.seq + (-1 if is_down else 1), edge.ts
            is_short = piece.tier == "warm" and len(piece.messages) < left and seq >= 1
            if is_short and seq > await self._get_top(chat):
                break  # no tier has it, or it is not stored yet
        return run

    async def _read_piece(self, chat: str, ask: _Ask, *, has_some: bool) -> Run:
        """Return the entries that one tier has of those asked for, or none."""
        known = self._tops.get(chat)
        top = 0 if known is None else known.top.seq
        if ask.seq > top:
            if found := await self._ask_warm(chat, ask):
                return Run(found, "warm")
            top = await self._get_top(chat)
            if ask.seq > top:
                return Run([], "warm")
        try:
            if found := await self._ask_restored(chat, ask):
                return Run(found, "warm")
            first, last = ask.seq, min(top, ask.seq + ask.limit - 1)
            if ask.is_down:
                first, last = max(1, ask.seq - ask.limit + 1), ask.seq
            return Run(await self._cold.read(chat, first, last), "cold")
        except Unavailable:
            if has_some:
                return Run([], "warm")  # the entries of the other tier are returned
            raise

    async def _ask_restored(self, chat: str, ask: _Ask) -> list[Message]:
        """Return restored entries of the archive from the warm tier."""
        known = self._tops.get(chat)
        if known is None or self._clock.monotonic() - known.at > KNOWN_S:
            await self._get_top(chat)
        known = self._tops.get(chat)
        now_s = self._clock.time()
        for held in known.top.restored if known is not None else ():
            if held.serves(ask.seq, now_s):
                room = ask.seq - held.first if ask.is_down else held.done - ask.seq
                return await self._ask_warm(chat, ask._replace(limit=min(ask.limit, room + 1)))
        return []

    async def _ask_warm(self, chat: str, ask: _Ask) -> list[Message]:
        if ask.is_down:
            return await self._warm.list_before(chat, ask.seq + 1, ask.limit, ask.ts)
        return await self._warm.list_after(chat, ask.seq - 1, ask.limit, ask.ts)

    async def _get_top(self, chat: str) -> int:
        top = await self._cold.get_top(chat)
        self._learn(chat, top)
        return top.seq

    def _learn(self, chat: str, top: ArchiveTop) -> None:
        if top.seq:
            known = self._tops.get(chat)
            if known is not None and known.top.seq > top.seq:
                return  # a stale response
            self._tops[chat] = _Known(top, self._clock.monotonic())
            self._tops.move_to_end(chat)
            if len(self._tops) > TOPS_MAX:
                self._tops.popitem(last=False)
