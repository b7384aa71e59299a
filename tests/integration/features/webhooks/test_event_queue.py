"""Events on their way to a webhook, in Redis: none is lost between the places where they wait."""

from __future__ import annotations

from typing import Any

import pytest

from chatserver.features.webhooks.hot import FULL, EventQueue
from chatserver.hot.redis.client import HotClient

pytest_plugins = ["tests.integration.hot.fixtures"]


async def test_fed_events_beyond_the_bound_are_dead_letters(hot: HotClient) -> None:
    """Waiting events are bounded; excess ones are kept for the operator, in order."""
    events = EventQueue(hot, 0, pending_max=3)

    await events.append([b"1", b"2"])
    await events.append([b"3", b"4"])
    await events.append([b"5"])

    assert [each.event for each in await events.list_pending(10)] == [b"1", b"2", b"5"]
    dead = await events.list_dead("0-0", 10)
    assert [(each.event, each.why) for each in dead] == [(b"3", FULL), (b"4", FULL)]


async def test_postponed_event_is_tried_again_when_it_is_due(hot: HotClient) -> None:
    """Not before, once, and it counts how often it was tried."""
    events = EventQueue(hot, 0, pending_max=10)
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


async def test_given_up_event_is_replayed_as_new(hot: HotClient) -> None:
    """It leaves the dead letters and has no attempts."""
    events = EventQueue(hot, 0, pending_max=10)
    await events.append([b"1", b"2"])
    first, second = await events.list_pending(10)
    await events.delete(second)

    await events.dead_letter(first, "refused")
    (dead,) = await events.list_dead("0-0", 10)
    await events.replay(dead)

    assert (dead.attempts, dead.why) == (1, "refused")
    assert await events.list_dead("0-0", 10) == []
    assert [(each.event, each.attempts) for each in await events.list_pending(10)] == [(b"1", 0)]


async def test_event_that_no_longer_waits_is_moved_nowhere(hot: HotClient) -> None:
    """Erased or delivered by another process during a pause: it stays removed."""
    events = EventQueue(hot, 0, pending_max=10)
    await events.append([b"1", b"2"])
    first, second = await events.list_pending(10)
    for each in (first, second):
        await events.delete(each)

    moved = [await events.postpone(first, due_ms=1000), await events.dead_letter(second, "refused")]

    assert moved == [False, False]
    await events.requeue_due(1000, 10)
    assert await events.list_pending(10) == []
    assert await events.list_dead("0-0", 10) == []


async def test_late_event_that_is_erased_while_it_is_woken_does_not_wait_again(
    hot: HotClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one that another process requeued: it is delivered once."""
    events = EventQueue(hot, 0, pending_max=10)
    await events.append([b"1"])
    (first,) = await events.list_pending(10)
    await events.postpone(first, due_ms=1000)
    call = hot.call

    async def call_and_sleep(*command: Any) -> Any:
        """The result of the call is outdated when the process continues."""
        answer = await call(*command)
        await call("DEL", hot.keys.hooks_late(0))
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(hot, "call", call_and_sleep)
        await events.requeue_due(1000, 10)

    assert await events.list_pending(10) == []
