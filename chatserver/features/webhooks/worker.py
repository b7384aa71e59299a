"""Webhook worker: requests `before_send` verdicts and delivers events.

::

    persist ──► hooks ──► deliver, concurrently ──► delete
                  ▲          │ failed
                  └── late ◄─┴─ after ATTEMPTS_MAX, or a permanent error ──► dead letters

One worker, the lease holder, delivers the events of a partition. An event is deleted after its
delivery, so a crash can cause a second delivery with the same id. Events of one chat are delivered
in order, except that a failed event is retried later. While the endpoint is down, only one event at
a time is sent as a probe, at increasing intervals. The other events wait, which does not count as
an attempt.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence

import msgspec
import structlog

from chatserver.container.storage import StorageContainer
from chatserver.domain.jitter import add_jitter
from chatserver.errors import BadRequest, Unavailable
from chatserver.features.webhooks.client import Webhook
from chatserver.features.webhooks.hot import PENDING_MAX, PendingEvent, WebhookQueue
from chatserver.features.webhooks.settings import Webhooks
from chatserver.hot.bus import rpc
from chatserver.hot.bus.rpc_queue import RpcQueue
from chatserver.protocol import webhook_messages as messages
from chatserver.task_groups import open_task_group
from chatserver.telemetry import metrics
from workers.partition_workers import run_partitions
from workers.rpc import RpcWorker

log = structlog.get_logger()

CALLS_IN_FLIGHT_MAX = 512
CALLS_OF_SENDER_MAX = 64  # the sends that a session may have in flight
LEASE_S = 60.0
ATTEMPTS_MAX = 12  # maximum attempts per event, which then becomes a dead letter
BACKOFF_S = 2.0  # delay before the second attempt; doubled after each further attempt
BACKOFF_S_MAX = 3600.0
IN_FLIGHT_MAX = 16  # maximum concurrent requests to `events_url` per partition
IDLE_MS = 1000  # poll interval for delayed events, if no event is pending
BATCH_MAX = 64
DUE_MAX = 500
PAUSE_S_MAX = 30.0  # maximum interval between attempts while the endpoint is down
# Permanent errors: a retry cannot succeed (RFC 9110 section 15.5).
PERMANENT_STATUSES = frozenset({400, 405, 410, 411, 413, 414, 415, 422, 431})

_encode = msgspec.msgpack.Encoder().encode


class BeforeSendCaller(RpcWorker):
    """Requests `before_send` verdicts for gateways, which have no HTTP client."""

    def __init__(self, container: StorageContainer, name: str, url: str) -> None:
        queue = RpcQueue(
            hot=container.hot,
            consumer=name,
            clock=container.clock,
            key=container.hot.keys.hook_calls(),
        )
        # A webhook may be slow: all sends of a session may wait for it at the same time.
        super().__init__(container, name, queue, CALLS_IN_FLIGHT_MAX, CALLS_OF_SENDER_MAX)
        settings = container.settings.get(Webhooks)
        self._webhook = Webhook(
            outbound=container.outbound,
            url=url,
            secret=settings.secret.get_secret_value(),
            timeout_s=settings.before_send_timeout_s,
            clock=container.clock,
        )

    async def _perform(self, operation: rpc.AnyOperation) -> bytes:
        if not isinstance(operation, rpc.CallBeforeSend):
            return await super()._perform(operation)
        try:
            return _encode(await self._webhook.request_verdict(operation.question))
        except BadRequest as exc:
            # The configuration is wrong, not the message: `before_send_policy` decides.
            raise Unavailable(
                f"before_send: {exc.message}", public="the before-send webhook failed; try again"
            ) from exc


class EventDeliverer:
    """Delivers the events of one partition."""

    def __init__(
        self, *, container: StorageContainer, partition: int, owner: str, url: str
    ) -> None:
        settings = container.settings.get(Webhooks)
        self._settings = settings
        self._events = WebhookQueue(container.hot, partition, PENDING_MAX)
        self._lease = container.make_lease("webhooks", owner, LEASE_S, partition)
        self._webhook = Webhook(
            outbound=container.outbound,
            url=url,
            secret=settings.secret.get_secret_value(),
            timeout_s=settings.timeout_s,
            clock=container.clock,
        )
        self._pause_s = 0.0  # delay before the next attempt while the endpoint is down; else 0

    async def run(self) -> None:
        """Deliver events until cancelled; see `run_webhooks`."""
        async with self._lease.release_on_exit():
            try:
                while True:
                    if not await self._lease.hold():
                        await asyncio.sleep(add_jitter(LEASE_S / 20))
                        continue
                    await asyncio.sleep(await self.step())
            finally:
                await self._events.close()

    async def step(self) -> float:
        """Deliver or await pending events; return the delay (s) before the next call of `step`."""
        await self._events.requeue_due(await self._events.now_ms(), DUE_MAX)
        waiting = await self._events.list_pending(1 if self._pause_s else BATCH_MAX)
        if not waiting:
            await self._events.wait(IDLE_MS)
            return 0.0
        lanes = split_lanes(waiting, IN_FLIGHT_MAX)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._deliver_lane(lane)) for lane in lanes]
        if any(task.result() for task in tasks):
            self._pause_s = 0.0
            return 0.0
        pause_s = max(2 * self._pause_s, BACKOFF_S)
        self._pause_s = min(pause_s, PAUSE_S_MAX, BACKOFF_S_MAX)
        log.warning("webhooks.paused", wait_s=round(self._pause_s, 1))
        return add_jitter(self._pause_s)

    async def _deliver_lane(self, lane: Sequence[PendingEvent]) -> bool:
        """Deliver the events in `lane` in order; return False if the first one failed temporarily.

        After a failure, the remaining events wait for the next call of `step`.
        """
        is_up = False
        for waiting in lane:
            if is_up and self._lease.left_s() <= self._settings.timeout_s:
                break  # the next step renews the lease
            if not await self._deliver(waiting):
                break
            is_up = True
        return is_up

    async def _deliver(self, waiting: PendingEvent) -> bool:
        """Deliver one event; return False after a temporary error."""
        try:
            event = messages.decode_event(waiting.event)
        except msgspec.MsgspecError as exc:
            await self._events.dead_letter(waiting, f"invalid event: {exc}")
            return True
        try:
            status = (await self._webhook.call(waiting.event, event.type, event.id)).status
        except (BadRequest, Unavailable) as exc:
            await self._fail(waiting, exc.message)
            return False
        if 200 <= status < 300:
            metrics.HOOK_EVENTS.labels("sent").inc()
            await self._events.delete(waiting)
            return True
        if status in PERMANENT_STATUSES:
            log.error("webhooks.refused", event_id=event.id, status=status)
            await self._events.dead_letter(waiting, f"returned status {status}")
            return True
        await self._fail(waiting, f"returned status {status}")
        return False

    async def _fail(self, waiting: PendingEvent, reason: str) -> None:
        metrics.HOOK_EVENTS.labels("failed").inc()
        if waiting.attempts + 1 >= ATTEMPTS_MAX:
            log.error("webhooks.given_up", reason=reason, attempts=waiting.attempts + 1)
            await self._events.dead_letter(waiting, reason)
            return
        wait_s = min(BACKOFF_S * 2**waiting.attempts, BACKOFF_S_MAX)
        due_ms = await self._events.now_ms() + int(add_jitter(wait_s) * 1000)
        await self._events.postpone(waiting, due_ms)


def split_lanes(waiting: Sequence[PendingEvent], count: int) -> list[list[PendingEvent]]:
    """Split events into up to `count` lists. All events of a chat are in one list, in order."""
    lanes: list[list[PendingEvent]] = [[] for _ in range(count)]
    for entry in waiting:
        lanes[zlib.crc32(_get_subject(entry.event)) % count].append(entry)
    return [lane for lane in lanes if lane]


def _get_subject(event: bytes) -> bytes:
    """Return the subject of an event: its id up to the last dot."""
    start = event.find(b'"id":"') + 6
    return event[start : event.find(b'"', start)].rpartition(b".")[0]


async def run_webhooks(container: StorageContainer, owner: str) -> None:
    """Run the configured webhooks until cancelled.

    Raises:
        Unavailable: Redis is unavailable; restart the worker.
    """
    settings = container.settings.get(Webhooks)
    async with open_task_group() as group:
        if settings.before_send_url is not None:
            caller = BeforeSendCaller(container, owner, settings.before_send_url)
            group.create_task(caller.run(), name="before-send")
        if settings.events_url is not None:
            url = settings.events_url

            async def deliver(partition: int) -> None:
                await EventDeliverer(
                    container=container, partition=partition, owner=owner, url=url
                ).run()

            group.create_task(run_partitions(container.hot, "webhooks", deliver), name="events")
        group.create_task(asyncio.Event().wait(), name="idle")
