"""Shared session context: dependencies and hot-path counters of all sessions of a gateway."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine

import structlog

from chatserver import config
from chatserver.container.gateway import GatewayContainer
from chatserver.gateway.delivery.large_chat_delivery import LargeChatDelivery
from chatserver.gateway.session.request_dispatcher import RequestDispatcher
from chatserver.gateway.session.session_auth import TokenExpiry
from chatserver.gateway.transport.slow_client_stats import SlowClients
from chatserver.service.messaging.stored_waits import StoredWaits

log = structlog.get_logger()

# Maximum number of snapshots that are read concurrently; other sessions wait. After Redis has lost
# data, every session needs a snapshot. Without a limit, the calls to the warm tier would time out
# while they are queued, and would be retried.
RECOVERIES_MAX = 256


class HotPathCounters:
    """Plain counters of a gateway's hot path; the server adds them to the metrics every second.

    `pushed` minus `pushed_before` is the number of new events (not catch-up events) sent in this
    loop tick. `first` is the body of the first new event. If tracing is enabled, `traced` has all
    new events.
    """

    __slots__ = (
        "acked",
        "dups",
        "first",
        "pushed",
        "pushed_before",
        "refused",
        "stored",
        "traced",
        "written_bytes",
    )

    def __init__(self) -> None:
        self.first: bytes | None = None
        self.traced: list[tuple[bytes, int]] | None = None
        self.reset()

    def reset(self) -> None:
        """Restart all counts at zero."""
        self.acked = 0
        self.stored = 0  # acks that waited for the warm tier; included in `acked`
        self.dups = 0
        self.refused: dict[str, int] = {}
        self.pushed = 0
        self.written_bytes = 0
        self.pushed_before = 0

    def record_new_event(self, body: bytes, count: int) -> None:
        """Record that `count` frames with new events were sent; `body` is the first event."""
        if self.first is None:
            self.first = body
        if self.traced is not None:
            self.traced.append((body, count))


class SessionTasks:
    """Tasks of all sessions. At shutdown, the server cancels the running tasks."""

    def __init__(self) -> None:
        self.running: set[asyncio.Task[None]] = set()

    def spawn(
        self,
        work: Coroutine[object, object, None],
        name: str,
        on_crash: Callable[[], None] | None = None,
    ) -> None:
        """Run `work` as a task. An unexpected error is logged; then `on_crash` is called."""
        task = asyncio.create_task(self._guard(work, name, on_crash), name=name)
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    async def _guard(
        self, work: Coroutine[object, object, None], name: str, on_crash: Callable[[], None] | None
    ) -> None:
        try:
            await work
        except Exception:  # One failed task must not end the gateway.
            log.exception("session.task_failed", task=name)
            if on_crash is not None:
                on_crash()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SessionContext:
    """Dependencies that the sessions of one gateway share."""

    settings: config.Gateway
    all_settings: config.Settings
    container: GatewayContainer
    requests: RequestDispatcher
    channels: LargeChatDelivery
    counters: HotPathCounters
    slow_clients: SlowClients
    stored_waits: StoredWaits
    token_expiry: TokenExpiry
    tasks: SessionTasks
    recoveries: asyncio.Semaphore = dataclasses.field(
        default_factory=lambda: asyncio.Semaphore(RECOVERIES_MAX)
    )
