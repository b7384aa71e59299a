"""Only the lease holder exports the gauges of the backlog."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from prometheus_client import REGISTRY

from chatserver.container.storage import StorageContainer
from chatserver.warm.messages.messages import PersistItem
from tests.integration.workers.support import (
    Gateway,
    is_drained,
    make_direct,
    persister_of,
    running,
)
from tests.support.servers.processes import eventually


def get_backlog_age_s() -> float | None:
    """Return the value that a scrape of this process has."""
    return REGISTRY.get_sample_value("chatserver_backlog_age_seconds", {"partition": "0"})


async def test_backlog_age_increases_while_dynamodb_hangs_and_is_removed_with_the_lease(
    container: StorageContainer, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is 0 when the backlog is empty, and not exported after the worker stopped."""
    resume, put_batch = asyncio.Event(), container.messages.put_batch

    async def hang(items: Sequence[PersistItem], timeout_s: float) -> None:
        await resume.wait()
        await put_batch(items, timeout_s)

    monkeypatch.setattr(container.messages, "put_batch", hang)
    await gateway.send(await make_direct(container), "waits")

    async with running(persister_of(container).run()):
        await eventually(lambda: bool(get_backlog_age_s()), deadline_s=30)
        first = get_backlog_age_s()
        await eventually(lambda: (get_backlog_age_s() or 0) > (first or 0), deadline_s=30)
        resume.set()
        await eventually(lambda: is_drained(container), deadline_s=30)
        await eventually(lambda: get_backlog_age_s() == 0, deadline_s=30)

    assert get_backlog_age_s() is None
