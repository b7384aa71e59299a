"""Chat log: a Redis stream with a chat's newest entries (entry id = seq).

Data: ``{pN}:log:<chat>`` has the newest `log_max` entries and all unpersisted ones. An entry whose
text was deleted moves to ``{pN}:over:<chat>`` as a tombstone; reads return it at the entry's
position.

Invariant: entries are in order. A gap that no tombstone fills means that Redis has lost recent
writes, so readers check that the result is contiguous.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence, Set
from typing import Any, NamedTuple

from chatserver.domain.ids import ChatId, Epoch, Seq, Ts
from chatserver.domain.messages import ChatHead, LogEntry
from chatserver.hot.redis.client import HotClient
from chatserver.protocol import codec

HOLES_MAX = 1_000  # maximum number of gaps that a read fills with tombstones


def _parse(entry: list[Any]) -> LogEntry:
    name, (ts, blob) = entry
    _, _, tail = blob.partition(b"\n")
    return LogEntry(Seq(int(name.split(b"-")[0])), Ts(int(ts)), tail)


class StoredSeqs(NamedTuple):
    """The warm tier has the entries up to `upto`. Of `dead`, it has only tombstones."""

    upto: Seq
    dead: Set[int] = frozenset()

    @property
    def top(self) -> Seq:
        """The newest stored seq that is no dead letter."""
        top = self.upto
        while top in self.dead:
            top = Seq(top - 1)
        return top


def parse_stored(stored: bytes | None, dead: bytes | None) -> StoredSeqs:
    """Parse the fields `stored` and `dead` of a chat."""
    seqs = [int(seq) for seq in (dead or b"").split(b",") if seq]
    return StoredSeqs(Seq(int(stored or 0)), frozenset(seqs))


class ChatLog:
    """Reads logs. Commits go through `chatserver.hot.chats.group_commit`."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    def get_epoch(self, chat: ChatId) -> Epoch:
        """Return the epoch of the chat's Redis partition."""
        return self._hot.get_epoch(self._hot.keys.get_partition(chat))

    async def get_head(self, chat: ChatId) -> ChatHead:
        """Return the chat's newest seq and state; not in Redis: `seq` 0 and `is_open` False."""
        key = self._hot.keys.chat(chat)
        seq, gate, stored = await self._hot.call("HMGET", key, "seq", "gate", "stored")
        return ChatHead(Seq(int(seq or 0)), self._hot.is_loaded(chat, gate), int(stored or 0))

    async def get_stored(self, chat: ChatId) -> StoredSeqs:
        """Return the seq up to which the warm tier has the chat, and its newest dead letters.

        Raises:
            Unavailable: the chat was loaded in a later epoch than this process knows. In that
                epoch, the same seqs may belong to other messages.
        """
        stored, dead, gate = await self._hot.call(
            "HMGET", self._hot.keys.chat(chat), "stored", "dead", "gate"
        )
        self._check_epoch(chat, gate)
        return parse_stored(stored, dead)

    async def find_newest_ts(self, chat: ChatId) -> Ts | None:
        """Return an upper bound for the timestamps of all committed entries.

        None means that the chat is not loaded.
        """
        (ts, gate), (seconds, micros) = await self._hot.snapshot(
            ("HMGET", self._hot.keys.chat(chat), "ts", "gate"), ("TIME",)
        )
        if not self._hot.is_loaded(chat, gate):
            return None
        return Ts(max(int(ts), int(seconds) * 1_000_000 + int(micros)))

    async def is_earlier_history_readable(self, chat: ChatId) -> bool:
        """Return whether members can read messages from before they joined."""
        value: bytes | None = await self._hot.call("HGET", self._hot.keys.chat(chat), "history")
        return value == b"all"

    async def list_before(self, chat: ChatId, before: Seq | None, limit: int) -> list[LogEntry]:
        """Return the newest `limit` entries, ascending; with `before`, only entries below it."""
        end = "+" if before is None else f"({before}-0"
        if before is not None and before <= 0:
            return []
        reply = await self._read(chat, "XREVRANGE", end, "-", limit)
        entries = [_parse(entry) for entry in reversed(reply)]
        if before is not None or entries:
            last = entries[-1].seq if before is None else before - 1
            entries = await self._fill(chat, entries, max(1, last - limit + 1), last)
        return entries[-limit:]

    async def list_after(self, chat: ChatId, after: Seq, limit: int) -> list[LogEntry]:
        """Return the oldest entries above `after`, in ascending seq."""
        reply = await self._read(chat, "XRANGE", f"({after}-0", "+", limit)
        entries = [_parse(entry) for entry in reply]
        last = min(after + limit, entries[-1].seq) if entries else after
        return (await self._fill(chat, entries, after + 1, last))[:limit]

    async def list_large(
        self, chat: ChatId, after: Seq, limit: int
    ) -> tuple[int | None, list[LogEntry]]:
        """Return `(large, entries)`, read atomically; all `entries` are above `after`.

        `large` is the chat version at which the chat became large; 0 if the chat is not large,
        None if it is not loaded.
        """
        keys = self._hot.keys
        (large, gate), reply = await self._hot.snapshot(
            ("HMGET", keys.chat(chat), "large", "gate"),
            ("XRANGE", keys.log(chat), f"({after}-0", "+", "COUNT", limit),
        )
        self._check_epoch(chat, gate)
        entries = [_parse(entry) for entry in reply]
        last = min(after + limit, entries[-1].seq) if entries else after
        page = (await self._fill(chat, entries, after + 1, last))[:limit]
        return None if large is None else int(large), page

    async def list_range(self, chat: ChatId, first: Seq, last: Seq) -> list[LogEntry]:
        """Return the log entries in ``[first, last]``, both inclusive."""
        count = max(1, last - first + 1)  # with COUNT 0, Redis returns nil
        reply = await self._read(chat, "XRANGE", f"{first}-0", f"{last}-0", count)
        return await self._fill(chat, [_parse(entry) for entry in reply], first, last)

    async def list_overlay(self, chat: ChatId, seqs: Sequence[int]) -> dict[int, bytes]:
        """Return the current JSON of the changed entries in `seqs`; the log may have old versions.

        For an entry whose text was deleted, the returned value is JSON without the text, or only
        its `rev` (the seq of the entry that changed it).

        Guarantees:
            Current: a caller that reads the warm tier after this call sees, in one of the two
                results, each change that was acked before the call.
            Cost: one Redis call.
        """
        if not seqs:
            return {}
        values = await self._hot.call("HMGET", self._hot.keys.over(chat), *seqs)
        return {seq: value for seq, value in zip(seqs, values, strict=True) if value is not None}

    async def _read(self, chat: ChatId, command: str, start: str, end: str, limit: int) -> Any:
        """Read a range of the log.

        Raises:
            Unavailable: Redis is in a later epoch than this process knows.
        """
        keys = self._hot.keys
        gate, reply = await self._hot.snapshot(
            ("HGET", keys.chat(chat), "gate"),
            (command, keys.log(chat), start, end, "COUNT", limit),
        )
        self._check_epoch(chat, gate)
        return reply

    def _check_epoch(self, chat: ChatId, gate: bytes | None) -> None:
        """Raise Unavailable if the chat was loaded in a later epoch than this process knows."""
        partition = self._hot.keys.get_partition(chat)
        epoch = self._hot.get_epoch(partition)
        if gate is not None and gate.partition(b":")[0] > epoch.encode():
            self._hot.raise_epoch_lost(partition, epoch)

    async def _fill(
        self, chat: ChatId, entries: list[LogEntry], first: int, last: int
    ) -> list[LogEntry]:
        """Insert tombstones into the gaps of ``[first, last]``; without gaps, do not call Redis."""
        is_covered = entries and entries[0].seq <= first and last <= entries[-1].seq
        if is_covered and entries[-1].seq - entries[0].seq + 1 == len(entries):
            return entries
        seqs = {entry.seq for entry in entries}
        # The range may be much longer than the log, so do not list all of its seqs.
        missing = (seq for seq in range(first, last + 1) if seq not in seqs)
        holes = list(itertools.islice(missing, HOLES_MAX))
        overlay = await self.list_overlay(chat, holes)
        messages = [codec.split_message(json) for json in overlay.values() if json[:1] == b"{"]
        if messages:
            entries += [LogEntry(Seq(seq), Ts(ts), tail) for seq, ts, tail in messages]
            entries.sort(key=lambda entry: entry.seq)
        return entries
