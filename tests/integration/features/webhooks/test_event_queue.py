"""The queue of webhook events in Redis: pending, postponed and dead events."""

from __future__ import annotations

from typing import Any

import pytest

from chatserver.features.webhooks.hot import FULL, WebhookQueue
from chatserver.features.webhooks.keys import WebhookKeys
from chatserver.hot.redis.client import HotClient

KEYS = WebhookKeys(1)


async def test_events_beyond_the_queue_limit_are_dead_letters(hot: HotClient) -> None:
    """They are kept in order for the operator."""
    events = WebhookQueue(hot, 0, pending_max=3)

    await events.append([b"1", b"2"])
    await events.append([b"3", b"4"])
    await events.append([b"5"])

    assert [each.event for each in await events.list_pending(10)] == [b"1", b"2", b"5"]
    dead = await events.list_dead("0-0", 10)
    assert [(each.event, each.why) for each in dead] == [(b"3", FULL), (b"4", FULL)]


async def test_postponed_event_is_requeued_once_when_due(hot: HotClient) -> None:
    """The event keeps its number of attempts."""
    events = WebhookQueue(hot, 0, pending_max=10)
    await events.append([b"1", b"2"])
    first, _ = await events.list_pending(10)

    await events.postpone(first, due_ms=1000)
    await events.requeue_due(999, 10)
    before = [each.event for each in await events.list_pending(10)]
    for _ in range(2):
        await events.requeue_due(1000, 10)

    assert before == [b"2"]
    after = await events.list_pending(10)
    assert [(each.event, each.attempts) for each in after] == [(b"2", 0), (b"1", 1)]


async def test_dead_event_is_replayed_as_new(hot: HotClient) -> None:
    """The event is removed from the dead letters and its number of attempts is 0."""
    events = WebhookQueue(hot, 0, pending_max=10)
    await events.append([b"1", b"2"])
    first, second = await events.list_pending(10)
    await events.delete(second)

    await events.dead_letter(first, "refused")
    (dead,) = await events.list_dead("0-0", 10)
    await events.replay(dead)

    assert (dead.attempts, dead.why) == (1, "refused")
    assert await events.list_dead("0-0", 10) == []
    assert [(each.event, each.attempts) for each in await events.list_pending(10)] == [(b"1", 0)]


async def test_removed_event_is_not_postponed_or_dead_lettered(hot: HotClient) -> None:
    """Another process has delivered or erased it."""
    events = WebhookQueue(hot, 0, pending_max=10)
    await events.append([b"1", b"2"])
    first, second = await events.list_pending(10)
    for each in (first, second):
        await events.delete(each)

    moved = [await events.postpone(first, due_ms=1000), await events.dead_letter(second, "refused")]

    assert moved == [False, False]
    await events.requeue_due(1000, 10)
    assert await events.list_pending(10) == []
    assert await events.list_dead("0-0", 10) == []


async def test_postponed_event_erased_during_requeue_is_not_requeued(
    hot: HotClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event that another process requeued is not requeued either."""
    events = WebhookQueue(hot, 0, pending_max=10)
    await events.append([b"1"])
    (first,) = await events.list_pending(10)
    await events.postpone(first, due_ms=1000)
    call = hot.call

    async def call_then_erase(*command: Any) -> Any:
        """Delete the postponed events after each call, as another process could do."""
        answer = await call(*command)
        await call("DEL", KEYS.hooks_late(0))
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(hot, "call", call_then_erase)
        await events.requeue_due(1000, 10)

    assert await events.list_pending(10) == []
