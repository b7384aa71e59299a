"""Slow-client statistics for admins: the longest queues and the newest closes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import DeviceId, UserId
from chatserver.gateway.transport.slow_client_stats import SlowClients
from chatserver.telemetry.process_stats import QUEUES_MAX, SLOW_MAX


def connection(user: str, waiting: int) -> Any:
    """Return a connection whose peer does not read; without a user, it has no receiver yet."""
    receiver = SimpleNamespace(user=user, device="d") if user else None
    return SimpleNamespace(receiver=receiver, queued_bytes=waiting)


async def test_stats_contain_the_longest_queues_and_each_close_once() -> None:
    """Limits: ten queues and the twenty newest closes; a close is reported once."""
    slow = [connection(f"u{n}", n) for n in range(QUEUES_MAX + 5)] + [connection("", 99)]
    clients = SlowClients(cast(Any, slow), SystemClock())
    for number in range(SLOW_MAX + 3):
        clients.record_close(UserId(f"c{number}"), DeviceId("d"), number)

    first, second = await clients.drain_stats(), await clients.drain_stats()

    assert [queue.waiting_bytes for queue in first["queues"]] == list(range(14, 4, -1))
    assert [each.user for each in first["slow"]] == [f"c{n}" for n in range(3, SLOW_MAX + 3)]
    assert second["slow"] == []
