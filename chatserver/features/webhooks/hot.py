"""Redis queues of webhook events: pending, delayed for a retry, and dead letters.

Keys, per partition:

- ``hooks`` (stream): pending events. Fields: ``n`` (attempts) and ``e`` (the event as JSON).
- ``hooks-late`` (zset): events that wait for a retry. Member: ``n`` and ``e`` in msgpack. Score:
  retry time in ms.
- ``hooks-dead`` (stream): dead letters. Fields: ``n``, ``e`` and ``why``.

An event is moved in one transaction, and only if it is still in its queue: another process may have
delivered it or erased its user. If a process crashes during a delivery, the event is delivered
again. If there are `pending_max` pending events, new events become dead letters. The newest
`DEAD_MAX` dead letters are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest
from chatserver.features.webhooks.keys import WebhookKeys
from chatserver.features.webhooks.settings import Webhooks
from chatserver.hot.bus.stream_waiter import FIRST, StreamWaiter
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import load_script
from chatserver.protocol import webhook_messages as messages
from chatserver.protocol.frames import Message
from chatserver.telemetry import metrics

PENDING_MAX = 100_000  # maximum pending events per partition; further events become dead letters

DEAD_MAX = 100_000
APPENDED_MAX = 500  # maximum events per transaction
FULL = "too many events are waiting"


class PendingEvent(NamedTuple):
    """A pending event, the id of its stream entry, and the number of attempts."""

    entry: str
    attempts: int
    event: bytes


class DeadEvent(NamedTuple):
    """A dead letter. `id` is ``<partition>:<entry id>``; `why` is the reason for the failure."""

    id: str
    attempts: int
    why: str
    event: bytes


class WebhookQueue:
    """Webhook events of one partition."""

    def __init__(self, hot: HotClient, partition: int, pending_max: int) -> None:
        self._hot = hot
        self._partition = partition
        self._pending_max = pending_max
        keys = WebhookKeys(hot.keys.partitions)
        self._key, self._late = keys.hooks(partition), keys.hooks_late(partition)
        self._dead = keys.hooks_dead(partition)
        self._entries = StreamWaiter(hot, self._key)

    async def append(self, events: Sequence[bytes]) -> None:
        """Queue events for delivery.

        Guarantees:
            Each event is delivered at least once or becomes a dead letter. A repeated delivery has
            the same id.
            Order: first attempts are in the order of the calls.
        """
        for start in range(0, len(events), APPENDED_MAX):
            batch = events[start : start + APPENDED_MAX]
            waiting, late = await self._hot.snapshot(("XLEN", self._key), ("ZCARD", self._late))
            if int(waiting) + int(late) + len(batch) > self._pending_max:
                metrics.HOOK_EVENTS.labels("dead").inc(len(batch))
                adds = [self._build_dead_letter_command(event, 0, FULL) for event in batch]
            else:
                adds = [("XADD", self._key, "*", "n", 0, "e", event) for event in batch]
            await self._hot.transaction(*adds)

    def _build_dead_letter_command(
        self, event: bytes, attempts: int, reason: str
    ) -> tuple[str | bytes | int, ...]:
        fields = ("n", attempts, "why", reason[:500], "e", event)
        return ("XADD", self._dead, "MAXLEN", "~", DEAD_MAX, "*", *fields)

    async def now_ms(self) -> int:
        """Return the time of the Redis clock, on which retry times are based."""
        return await self._hot.get_time_ms(self._late)

    async def requeue_due(self, now_ms: int, limit: int) -> None:
        """Move delayed events back to the pending queue if their retry time has passed."""
        packed = await self._hot.call(
            "ZRANGEBYSCORE", self._late, "-inf", now_ms, "LIMIT", 0, limit
        )
        for value in packed:
            attempts, event = msgspec.msgpack.decode(value, type=tuple[int, bytes])
            await self._hot.run(
                load_script("requeue_webhook_event"),
                {"hooks": self._key, "hooks_late": self._late},
                {"packed": value, "attempts": attempts, "event": event},
            )

    async def wait(self, wait_ms: int) -> None:
        """Wait up to `wait_ms` until an event is pending. Raises Unavailable."""
        await self._entries.wait_after(FIRST, wait_ms)

    async def close(self) -> None:
        """Close the connection that `wait` uses."""
        await self._entries.close()

    async def list_pending(self, limit: int) -> list[PendingEvent]:
        """Return the `limit` oldest pending events."""
        reply = await self._hot.call("XRANGE", self._key, "-", "+", "COUNT", limit)
        return [PendingEvent(name.decode(), int(fields[1]), fields[3]) for name, fields in reply]

    async def delete(self, delivered: PendingEvent) -> None:
        await self._hot.call("XDEL", self._key, delivered.entry)

    async def postpone(self, failed: PendingEvent, due_ms: int) -> bool:
        """Delay an event for a retry; return False if it is no longer pending."""
        return await self._move(failed, due_ms=due_ms)

    async def dead_letter(self, failed: PendingEvent, reason: str) -> bool:
        """Move an event to the dead letters; return False if it is no longer pending."""
        is_moved = await self._move(failed, reason=reason)
        if is_moved:
            metrics.HOOK_EVENTS.labels("dead").inc()
        return is_moved

    async def _move(self, failed: PendingEvent, *, due_ms: int = 0, reason: str = "") -> bool:
        attempts = failed.attempts + 1
        moved: int = await self._hot.run(
            load_script("move_webhook_event"),
            {"hooks": self._key, "hooks_late": self._late, "hooks_dead": self._dead},
            {
                "entry": failed.entry,
                "attempts": attempts,
                "event": failed.event,
                "packed": msgspec.msgpack.encode((attempts, failed.event)),
                "due_ms": due_ms,
                "why": reason[:500],
                "dead_max": DEAD_MAX,
            },
        )
        return moved == 1

    # dead letters

    async def list_dead(self, after: str, limit: int) -> list[DeadEvent]:
        """Return the dead letters after entry id `after` (first page: ``0-0``), oldest first."""
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
        """Queue a dead letter again, and reset its attempts."""
        entry = dead.id.partition(":")[2]
        if not entry:
            raise BadRequest("dead letter id: must be <partition>:<entry id>")
        await self._hot.transaction(
            ("XADD", self._key, "*", "n", 0, "e", dead.event), ("XDEL", self._dead, entry)
        )


class WebhookEvents:
    """Publishes webhook events; does nothing if no event webhook is configured."""

    def __init__(self, hot: HotClient, settings: Webhooks) -> None:
        self._is_on = settings.events_url is not None
        self._hot = hot
        self._partitions = [
            WebhookQueue(hot, number, PENDING_MAX) for number in range(hot.keys.partitions)
        ]

    @property
    def is_on(self) -> bool:
        return self._is_on

    async def publish(self, user: UserId, event: messages.HookEvent) -> None:
        """Queue an event about a user; see `WebhookQueue.append`."""
        if self._is_on:
            partition = self._hot.keys.get_partition(user)
            await self._partitions[partition].append([messages.encode(event)])

    async def publish_entries(self, partition: int, entries: Sequence[Message]) -> None:
        """Queue events about chat entries of one partition."""
        if self._is_on and entries:
            events = [messages.encode(messages.build_event(entry)) for entry in entries]
            await self._partitions[partition].append(events)
