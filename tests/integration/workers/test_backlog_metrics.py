"""Backlog gauges are exported by the lease holder only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from prometheus_client import REGISTRY

from chatserver.container.storage import StorageContainer
from chatserver.warm.messages.store import PersistItem
from tests.integration.workers.support import (
    Gateway,
    is_drained,
    make_direct,
    persister_of,
    running,
)
from tests.support.servers.processes import eventually

pytest_plugins = ["tests.integration.warm.fixtures", "tests.integration.workers.fixtures"]


def age_s() -> float | None:
    """The value that a scrape of this process would show."""
    return REGISTRY.get_sample_value("chatserver_backlog_age_seconds", {"partition": "0"})


async def test_age_of_the_backlog_rises_while_the_store_hangs_and_leaves_with_the_lease(
    container: StorageContainer, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scrape sees it grow although the worker waits; drained it is 0; stopped there is none."""
    go_on, put_batch = asyncio.Event(), container.messages.put_batch

    async def hang(items: Sequence[PersistItem], timeout_s: float) -> None:
        await go_on.wait()
        await put_batch(items, timeout_s)

    monkeypatch.setattr(container.messages, "put_batch", hang)
    await gateway.send(await make_direct(container), "waits")

    async with running(persister_of(container).run()):
        await eventually(lambda: bool(age_s()), deadline_s=30)
        first = age_s()
        await eventually(lambda: (age_s() or 0) > (first or 0), deadline_s=30)
        go_on.set()
        await eventually(lambda: is_drained(container), deadline_s=30)
        await eventually(lambda: age_s() == 0, deadline_s=30)

    assert age_s() is None
