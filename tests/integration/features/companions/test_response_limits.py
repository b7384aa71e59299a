"""Limits of AI responses per user: tokens per day and concurrent responses."""

from __future__ import annotations

import time

import pytest

from chatserver.domain.ids import ChatId
from chatserver.errors import RateLimited
from chatserver.features.companions.hot.token_budget import TooManyResponses
from chatserver.features.companions.keys import CompanionKeys
from tests.integration.features.companions.assistant_support import (
    AssistantWorld,
    open_assistant_world,
)
from tests.integration.warm.support import Tables
from tests.integration.workers.support import be_on_one_day
from tests.support.servers.processes import eventually, eventually_equal

KEYS = CompanionKeys(1)


async def test_assistant_tokens_per_day_are_limited(redis_url: str, tables: Tables) -> None:
    """The check before a send and the response after it both return the reset time."""
    await be_on_one_day()
    async with open_assistant_world(redis_url, tables.settings, tokens_per_day=60) as world:
        chat = await world.session("echo", answer_tokens_max=50)
        async with world.running_worker():
            await world.send(chat, "x" * 240)
            await world.wait_for_responses(chat, 1)
            with pytest.raises(RateLimited) as refused:
                await world.budgets.check(world.alice, chat)
            await world.send(chat, "not checked")
            *_, answer = await world.wait_for_responses(chat, 2)

    wait_s = (refused.value.retry_after_ms or 0) / 1000
    to_midnight_s = 86_400 - time.time() % 86_400
    assert abs(wait_s - to_midnight_s) < 60
    assert answer.ai is not None and answer.ai.code == "rate_limited"
    assert "00:00 UTC" in answer.body


async def test_assistant_tokens_are_available_again_the_next_day(world: AssistantWorld) -> None:
    chat = ChatId("C")
    await world.budgets.charge(world.alice, chat, "", 10**9)
    with pytest.raises(RateLimited):
        await world.budgets.check(world.alice, chat)
    await world.hot.call("HINCRBY", KEYS.tokens(world.alice), "day", -1)

    await world.budgets.check(world.alice, chat)


async def test_assistant_concurrent_responses_are_limited(world: AssistantWorld) -> None:
    """A message beyond the limit gets its response when another response ends."""
    chats = [await world.session("stalls:1") for _ in range(3)]
    other = await world.session("echo")
    async with world.running_worker():
        for chat in chats:
            await world.send(chat, "hello")
        await eventually(lambda: all(len(world.signals(chat)) >= 2 for chat in chats))
        with pytest.raises(TooManyResponses):
            await world.budgets.check(world.alice, other)
        await world.send(other, "hello")  # this skips the check of the gateway
        tries = KEYS.response(other)
        await eventually(lambda: world.hot.call("HGET", tries, "tries"))
        assert await world.responses(other) == []

        await world.deltas.stop(chats[0])

        await eventually_equal(lambda: world.responses(other), 1, of=len)


async def test_assistant_reservation_is_settled_once(world: AssistantWorld) -> None:
    """A repeat changes nothing. A later reservation of the chat replaces the earlier one."""
    chat = ChatId("C")
    for turn in ("one", "two"):
        await world.budgets.reserve(world.alice, chat, turn, 100)

    assert not await world.budgets.charge(world.alice, chat, "one", 7)
    assert await world.budgets.charge(world.alice, chat, "two", 7)
    assert not await world.budgets.charge(world.alice, chat, "two", 7)
    key = KEYS.tokens(world.alice)
    assert await world.hot.call("HGET", key, "used") == b"7"


async def test_assistant_expired_reservation_is_counted_as_used(
    redis_url: str, tables: Tables
) -> None:
    """A killed worker may have used its tokens."""
    async with open_assistant_world(redis_url, tables.settings, response_timeout_s=0.05) as world:
        chat = ChatId("C")
        await world.budgets.reserve(world.alice, chat, "one", 100)
        key = KEYS.tokens(world.alice)

        async def is_counted() -> bool:
            await world.budgets.check(world.alice, ChatId("D"))
            used = await world.hot.call("HMGET", key, "used", f"t:{chat}")
            return bool(used == [b"100", None])

        await eventually(is_counted, what="the tokens of the expired reservation are used")
