"""Events on their way to a webhook: what waits, what waits to be tried again, what is given up.

Data, per partition: ``hooks`` (stream, entry ``n`` attempts, ``e`` the event's JSON),
``hooks-late`` (zset, the same packed → when it is due, ms), ``hooks-dead`` (stream: also ``why``).
An event leaves one of them in the same transaction in which it enters the next, so a process may
die anywhere: what it was telling is told again. What is not where it waited was told by another
process, or erased with its user, while this one slept: it is moved nowhere. Bound: `pending_max`
wait; beyond it events are dead letters at once, of which the newest `DEAD_MAX` are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from chatserver.config import Webhooks
from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest
from chatserver.hot.client import HotClient
from chatserver.hot.scripts import load_script
from chatserver.protocol import hooks
from chatserver.protocol.frames import Message
from chatserver.telemetry import metrics

DEAD_MAX = 100_000
FED_MAX = 500  # events in one command
FULL = "too many events wait"


class WaitingEvent(NamedTuple):
    """An event, its entry in the stream, and how often it was tried."""

    entry: str
    attempts: int
    event: bytes


class DeadEvent(NamedTuple):
    """An event that was given up: its place, as ``<partition>:<entry>``, and why."""

    place: str
    attempts: int
    why: str
    event: bytes


class HookEvents:
    """The events of one partition."""

    def __init__(self, hot: HotClient, partition: int, pending_max: int) -> None:
        self._hot = hot
        self._partition = partition
        self._pending_max = pending_max
        keys = hot.keys
        self._key, self._late = keys.hooks(partition), keys.hooks_late(partition)
        self._dead = keys.hooks_dead(partition)

    async def feed(self, events: Sequence[bytes]) -> None:
        """Take events to be told.

        Guarantees:
            Order: they are first told in the order in which they are fed.
            Delivery: at least once; what was fed and is fed again comes twice, with the same id.
        """
        for at in range(0, len(events), FED_MAX):
            some = events[at : at + FED_MAX]
            waiting, late = await self._hot.snapshot(("XLEN", self._key), ("ZCARD", self._late))
            if int(waiting) + int(late) + len(some) > self._pending_max:
                metrics.HOOK_EVENTS.labels("dead").inc(len(some))
                adds = [self._bury(event, 0, FULL) for event in some]
            else:
                adds = [("XADD", self._key, "*", "n", 0, "e", event) for event in some]
            await self._hot.transaction(*adds)

    def _bury(self, event: bytes, attempts: int, why: str) -> tuple[str | bytes | int, ...]:
        fields = ("n", attempts, "why", why[:500], "e", event)
        return ("XADD", self._dead, "MAXLEN", "~", DEAD_MAX, "*", *fields)

    async def now_ms(self) -> int:
        """Return the time of Redis, by which it is noted when events are tried again."""
        return await self._hot.time_ms(self._late)

    async def take_due(self, now_ms: int, limit: int) -> None:
        """Put back among those that wait what was to be tried again by now."""
        packed = await self._hot.call(
            "ZRANGEBYSCORE", self._late, "-inf", now_ms, "LIMIT", 0, limit
        )
        for value in packed:
            attempts, event = msgspec.msgpack.decode(value, type=tuple[int, bytes])
            await self._hot.run(
                load_script("wake_event"),
                {"hooks": self._key, "hooks_late": self._late},
                {"packed": value, "attempts": attempts, "event": event},
            )

    async def list_waiting(self, limit: int) -> list[WaitingEvent]:
        """Return the events that wait longest."""
        reply = await self._hot.call("XRANGE", self._key, "-", "+", "COUNT", limit)
        return [WaitingEvent(name.decode(), int(fields[1]), fields[3]) for name, fields in reply]

    async def done(self, told: WaitingEvent) -> None:
        """Forget an event that was told."""
        await self._hot.call("XDEL", self._key, told.entry)

    async def postpone(self, failed: WaitingEvent, due_ms: int) -> bool:
        """Try an event again later; False if it no longer waits."""
        return await self._move(failed, due_ms=due_ms)

    async def give_up(self, failed: WaitingEvent, why: str) -> bool:
        """Keep an event where operators find it; False if it no longer waits."""
        is_moved = await self._move(failed, why=why)
        if is_moved:
            metrics.HOOK_EVENTS.labels("dead").inc()
        return is_moved

    async def _move(self, failed: WaitingEvent, *, due_ms: int = 0, why: str = "") -> bool:
        attempts = failed.attempts + 1
        moved: int = await self._hot.run(
            load_script("move_event"),
            {"hooks": self._key, "hooks_late": self._late, "hooks_dead": self._dead},
            {
                "entry": failed.entry,
                "attempts": attempts,
                "event": failed.event,
                "packed": msgspec.msgpack.encode((attempts, failed.event)),
                "due_ms": due_ms,
                "why": why[:500],
                "dead_max": DEAD_MAX,
            },
        )
        return moved == 1

    # dead letters

    async def list_dead(self, after: str, limit: int) -> list[DeadEvent]:
        """Return dead letters after a place of theirs, oldest first; ``0-0`` is before all."""
        reply = await self._hot.call("XRANGE", self._dead, f"({after}", "+", "COUNT", limit)
        return [
            DeadEvent(
                f"{self._partition}:{name.decode()}",
                int(fields[1]),
                fields[3].decode(errors="replace"),
                fields[5],
            )
            for name, fields in reply
        ]

    async def replay(self, dead: DeadEvent) -> None:
        """Let a dead letter wait again, as if it had never been tried."""
        entry = dead.place.partition(":")[2]
        if not entry:
            raise BadRequest("a dead letter is named <partition>:<entry>")
        await self._hot.transaction(
            ("XADD", self._key, "*", "n", 0, "e", dead.event), ("XDEL", self._dead, entry)
        )


class HookFeed:
    """Where events begin their way; does nothing where no webhook is told of any."""

    def __init__(self, hot: HotClient, settings: Webhooks) -> None:
        self._is_on = settings.events_url is not None
        self._hot = hot
        self._partitions = [
            HookEvents(hot, number, settings.pending_max) for number in range(hot.keys.partitions)
        ]

    @property
    def is_on(self) -> bool:
        """True if events are told."""
        return self._is_on

    async def feed(self, user: UserId, event: hooks.HookEvent) -> None:
        """Take an event about a user; see `HookEvents.feed`."""
        if self._is_on:
            partition = self._hot.keys.partition_of(user)
            await self._partitions[partition].feed([hooks.encode(event)])

    async def feed_entries(self, partition: int, entries: Sequence[Message]) -> None:
        """Take the entries of chats of a partition."""
        if self._is_on and entries:
            events = [hooks.encode(hooks.event_of(entry)) for entry in entries]
            await self._partitions[partition].feed(events)
