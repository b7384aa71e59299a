"""The summary of a session: it cites its source messages and is deleted with them."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

import pytest

from chatserver.domain.ids import ChatId, Seq
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.model import SessionSummary
from tests.integration.features.companions.assistant_support import (
    AssistantWorld,
    open_assistant_world,
)
from tests.integration.warm.support import Tables
from tests.support.servers.processes import eventually

SECRET = "my secret is 4711"


@pytest.fixture
async def world(redis_url: str, tables: Tables) -> AsyncIterator[AssistantWorld]:
    """A world in which models get at most eight messages."""
    async with open_assistant_world(
        redis_url, tables.settings, context_messages_max=8, summary_tokens_max=300
    ) as made:
        yield made


async def exchange(world: AssistantWorld, chat: ChatId, *texts: str) -> None:
    """Send messages; wait for the response to each before the next one."""
    before = len(await world.responses(chat))
    for number, text in enumerate(texts, start=1):
        await world.send(chat, text)
        await world.wait_for_responses(chat, before + number)


async def wait_for_summary(world: AssistantWorld, chat: ChatId) -> SessionSummary:
    async def is_written() -> bool:
        return await world.container.get(CompanionContainer).summaries.find(chat) is not None

    await eventually(is_written, what="the summary is written")
    memory = await world.container.get(CompanionContainer).summaries.find(chat)
    assert memory is not None
    return memory


async def test_memory_summarizes_the_oldest_messages_for_the_model(
    world: AssistantWorld,
) -> None:
    """The summary replaces messages that do not fit the context, and has their range."""
    chat = await world.session("facts")
    async with world.running_worker():
        await exchange(world, chat, SECRET, "two", "three", "four")
        memory = await wait_for_summary(world, chat)
        await exchange(world, chat, "five")
        *_, answer = await world.responses(chat)

    assert memory.first == 1 and 4 <= memory.upto <= 6 and memory.rev == 1
    assert SECRET in memory.text
    assert f"in short:\n{memory.text}" in answer.body


async def test_memory_is_extended_during_the_session(world: AssistantWorld) -> None:
    """Each summary is made from the previous summary and the new messages."""
    chat = await world.session("echo")
    async with world.running_worker():
        await exchange(world, chat, *(f"number {n}" for n in range(1, 10)))
        memory = await wait_for_summary(world, chat)

    assert memory.first == 1 and memory.rev >= 2
    assert memory.upto >= 10
    assert "number 1" in memory.text


@pytest.mark.parametrize("change", ["delete", "edit", "hide"])
async def test_memory_is_deleted_with_a_cited_message(world: AssistantWorld, change: str) -> None:
    """The message is deleted, edited or hidden; the next summary does not have its text."""
    chat = await world.session("echo")
    async with world.running_worker():
        await exchange(world, chat, SECRET, *(f"number {n}" for n in range(2, 8)))
        assert SECRET in (await wait_for_summary(world, chat)).text
        # The response repeats the text, so it is hidden too.
        for seq in (1, 2):
            if change == "hide" or seq == 2:
                await world.hide(chat, seq)
            else:
                await world.change(chat, seq, change, "nothing")

        async def is_without() -> bool:
            memory = await world.container.get(CompanionContainer).summaries.find(chat)
            return memory is None or SECRET not in memory.text

        await eventually(is_without)
        await world.wait_until_idle()
        await exchange(world, chat, "go on")
        await world.wait_until_idle()
        memory = await wait_for_summary(world, chat)

    assert SECRET not in memory.text and "number 2" in memory.text


async def test_memory_expires_with_the_first_of_its_messages(world: AssistantWorld) -> None:
    """The summary stores this time, and is neither used nor extended later."""
    chat = await world.session("facts")
    expires_at = int(world.container.clock.time()) + 3600
    field = b',"expires_at":%d}' % expires_at
    audience = await world.container.audiences.get(chat)
    await world.gateway.send(
        audience, SECRET, sender=world.alice, tail=lambda tail: tail[:-1] + field
    )
    rows = world.container.get(CompanionContainer).summaries
    async with world.running_worker():
        await world.wait_for_responses(chat, 1)
        await exchange(world, chat, "two", "three", "four")
        memory = await wait_for_summary(world, chat)
        assert SECRET in memory.text and memory.expires_at == expires_at

        expired = dataclasses.replace(memory, rev=memory.rev + 1, expires_at=1)
        assert await rows.put(chat, expired)
        await exchange(world, chat, "five")
        *_, answer = await world.responses(chat)

    assert memory.text not in answer.body
    assert await rows.find(chat) != expired


async def test_memory_is_kept_when_a_later_message_is_deleted(
    world: AssistantWorld,
) -> None:
    """Only changes of cited messages delete the summary."""
    chat = await world.session("echo")
    async with world.running_worker():
        await exchange(world, chat, *(f"number {n}" for n in range(1, 6)))
        memory = await wait_for_summary(world, chat)
        later = [each.seq for each in await world.messages(chat) if each.sender == world.alice]
        await world.change(chat, max(later), "delete")
        await world.wait_until_idle()

        assert max(later) > memory.upto
        assert await world.container.get(CompanionContainer).summaries.find(chat) == memory


async def test_memory_of_a_long_session_is_rebuilt_from_history(
    world: AssistantWorld,
) -> None:
    """If a session has no summary, its history is read page by page."""
    chat = await world.session("facts", context_tokens_max=256, answer_tokens_max=200)
    await world.send(chat, *(f"number {n}" for n in range(1, 251)))
    async with world.running_worker():
        await world.wait_for_responses(chat, 1)
        memory = await wait_for_summary(world, chat)

    assert memory.first == 1 and memory.upto >= 240


async def test_memory_failure_does_not_prevent_responses(world: AssistantWorld) -> None:
    """The oldest messages are left out of the context."""
    chat = await world.session("dies:1")
    async with world.running_worker():
        await exchange(world, chat, *(f"number {n}" for n in range(1, 7)))

    assert await world.container.get(CompanionContainer).summaries.find(chat) is None
    assert len(await world.responses(chat)) == 6


async def test_memory_row_is_only_replaced_by_the_next_revision(
    world: AssistantWorld,
) -> None:
    """A paused worker cannot restore a deleted summary; a retry changes nothing."""
    rows, chat = world.container.get(CompanionContainer).summaries, ChatId("C")
    first, second = (
        SessionSummary(Seq(1), Seq(4), "one", 1),
        SessionSummary(Seq(1), Seq(8), "two", 2),
    )

    assert await rows.put(chat, first) and await rows.put(chat, first)
    assert not await rows.put(chat, SessionSummary(Seq(1), Seq(5), "other", 1))
    assert await rows.put(chat, second)
    assert not await rows.put(chat, first)
    assert await rows.find(chat) == second
    await rows.drop(chat)
    assert not await rows.put(chat, SessionSummary(Seq(1), Seq(9), "three", 3))
    assert await rows.find(chat) is None
