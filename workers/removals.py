"""What TTL removed from table `messages`: was it right? If not, it is put back.

::

    removed item ─► its text has ended                        ─► right
                 ─► the archive has it, at its `rev` or newer ─► right: the common case
                 ─► anything else                             ─► put back, and the chat is noted

The common case costs nothing: how far a chat is archived only rises, and is remembered; an object
is read only for an entry that had changed.

What is put back has no `ttl`: the archive worker takes it, and removes it itself. It is put back as
it is after all changes since, for a change of an item that is not there finds nothing to change.
Changes are therefore looked for before, and once more when all that saw it absent are written.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Sequence
from typing import Final, Literal, Protocol

import structlog

from chatserver.cold.archive import SegmentObjects
from chatserver.domain.clock import Clock
from chatserver.errors import CorruptData
from chatserver.protocol import expiry
from chatserver.protocol.entries import AMENDING, apply_entry
from chatserver.protocol.frames import Message
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.aged import AgedMessages
from chatserver.warm.changes import MessageChanges
from chatserver.warm.client import Item
from chatserver.warm.manifests import Manifests
from chatserver.warm.messages import decode_item
from chatserver.warm.returning import RemovedItems

log = structlog.get_logger()

TOPS_MAX: Final = 50_000
TRIES_MAX: Final = 4

Found = Literal["expired", "archived", "missing"]


class Judge:
    """Says of items whether the warm tier may do without them."""

    def __init__(self, manifests: Manifests, objects: SegmentObjects, clock: Clock) -> None:
        self._manifests = manifests
        self._objects = objects
        self._clock = clock
        self._tops: collections.OrderedDict[str, int] = collections.OrderedDict()

    async def judge(self, message: Message) -> Found:
        """Tell whether a message has expired, or the archive has it as it is; or neither.

        Raises:
            Unavailable: a store does not answer.
        """
        if expiry.has_expired(message, self._clock.time()):
            return "expired"
        if message.expires_at is not None and not message.deleted:
            return "missing"  # its text is in no archive
        if message.seq > await self._get_top(message):
            return "missing"
        if not message.rev:
            return "archived"  # as it was sent: the archive has nothing older
        return "archived" if await self._has_rev(message) else "missing"

    async def _get_top(self, message: Message) -> int:
        top = self._tops.get(message.chat, 0)
        if message.seq > top:
            top = (await self._manifests.get_top(message.chat)).seq
            self._tops[message.chat] = top
            if len(self._tops) > TOPS_MAX:
                self._tops.popitem(last=False)
        self._tops.move_to_end(message.chat)
        return top

    async def _has_rev(self, message: Message) -> bool:
        for _ in range(TRIES_MAX):
            rows = await self._manifests.list_covering(message.chat, message.seq, message.seq)
            try:
                held = await self._objects.read(rows[0])
            except (CorruptData, IndexError):
                continue  # replaced since it was looked for; or lost, and then it is missing
            return held[message.seq - rows[0].first].rev >= message.rev
        return False


class Entries(Protocol):
    """Entries of all tiers, by seq."""

    async def list_after(
        self, chat: str, after: int, limit: int, ts_hint: int | None = None
    ) -> list[Message]: ...


class Gone(Protocol):
    """What a reader of the Stream does with what TTL removed."""

    async def handle(self, removed: Sequence[Item]) -> None: ...


@dataclasses.dataclass
class Removals:
    """Sees to what TTL removed. `settle_s`: what began to be written before is written then."""

    judge: Judge
    manifests: Manifests
    aged: AgedMessages
    items: RemovedItems
    changes: MessageChanges
    entries: Entries
    clock: Clock
    settle_s: float

    async def handle(self, removed: Sequence[Item]) -> None:
        """See to it that nothing of what was removed is missing.

        Guarantees:
            Idempotent: what is there is left as it is, or newer.
            Cancellation: safe; to be called again with all of them.

        Raises:
            Unavailable: a store does not answer; to be called again with all of them.
        """
        missing: dict[str, list[tuple[Item, Message]]] = {}
        for item in removed:
            try:
                message = decode_item(item)
            except CorruptData as exc:
                log.error("stream.refused", error=exc.message)
                metrics.STREAM_REMOVALS.labels("refused").inc()
                continue
            found = await self.judge.judge(message)
            if found == "missing":
                if message.kind in AMENDING:
                    message = await self.items.load(item)  # its text changes another one
                missing.setdefault(message.chat, []).append((item, message))
            else:
                metrics.STREAM_REMOVALS.labels(found).inc()
        for chat, lacking in missing.items():
            # First: whoever finds the note looks at the chat.
            await self.manifests.note_late(chat, int(self.clock.time() * 1000))
            failpoint("stream.before_put_back")
            await self._put_back(chat, lacking)
            failpoint("stream.after_put_back")
        if missing:
            await asyncio.sleep(self.settle_s)
        for chat, lacking in missing.items():
            await self._catch_up(chat, [message for _, message in lacking])

    async def _put_back(self, chat: str, lacking: Sequence[tuple[Item, Message]]) -> None:
        first = min(message.ts for _, message in lacking)
        left = list(lacking)
        for _ in range(TRIES_MAX):
            since = await self.aged.list_amending(chat, first)
            is_back = [
                await self.items.put_back(item, changed_by(message, since))
                for item, message in left
            ]
            left = [each for each, is_done in zip(left, is_back, strict=True) if not is_done]
            if not left:
                break
            # A newer one is there. The entry that made it so may be written in a moment.
            await asyncio.sleep(self.settle_s / TRIES_MAX)
        for _, message in left:
            log.error("stream.refused", chat=chat, seq=message.seq, error="a newer one is there")
        count = len(lacking) - len(left)
        log.warning("stream.returned", chat=chat, count=count, first=lacking[0][1].seq)
        metrics.STREAM_REMOVALS.labels("refused").inc(len(left))
        metrics.STREAM_REMOVALS.labels("returned").inc(count)

    async def _catch_up(self, chat: str, returned: Sequence[Message]) -> None:
        """Apply what came while items were away: to them, and of them to others."""
        since: dict[int, list[Message]] = {}
        for entry in await self.aged.list_amending(chat, min(each.ts for each in returned)):
            since.setdefault(entry.target or 0, []).append(entry)
        for message in returned:
            if entries := since.get(message.seq):
                await self.changes.apply(chat, message.ts, entries)
            if message.kind in AMENDING and message.target and not message.deleted:
                for target in await self.entries.list_after(chat, message.target - 1, 1):
                    await self.changes.apply(chat, target.ts, [message])


def changed_by(message: Message, entries: Sequence[Message]) -> Message:
    """Return the message after those of `entries`, in rising seq, that are about it."""
    for entry in entries:
        if entry.target == message.seq:
            message = apply_entry(message, entry)
    return message
