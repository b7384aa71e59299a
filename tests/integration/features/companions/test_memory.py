"""A companion's summary, which refers to its sources and is deleted with them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from chatserver.domain.ids import ChatId, Seq
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.model import Memory
from tests.integration.features.companions.assistant_support import (
    AssistantWorld,
    open_assistant_world,
)
from tests.integration.warm.support import Tables
from tests.support.servers.processes import eventually

pytest_plugins = ["tests.integration.warm.fixtures"]

SECRET = "my secret is 4711"


@pytest.fixture
async def forgetful(redis_url: str, tables: Tables) -> AsyncIterator[AssistantWorld]:
    """A process that gives models eight messages."""
    async with open_assistant_world(
        redis_url, tables.settings, context_messages_max=8, summary_tokens_max=300
    ) as made:
        yield made


async def talk(world: AssistantWorld, chat: ChatId, *texts: str) -> None:
    """Say one thing after the other, each after the answer to the one before."""
    before = len(await world.answers(chat))
    for number, text in enumerate(texts, start=1):
        await world.say(chat, text)
        await world.wait_answers(chat, before + number)


async def memory_of(world: AssistantWorld, chat: ChatId) -> Memory:
    """Wait for a summary and return it."""

    async def is_there() -> bool:
        return await world.container.get(CompanionContainer).summaries.find(chat) is not None

    await eventually(is_there, what="a summary")
    memory = await world.container.get(CompanionContainer).summaries.find(chat)
    assert memory is not None
    return memory


async def test_memory_oldest_turns_are_summarized_and_told_to_the_model(
    forgetful: AssistantWorld,
) -> None:
    """When they no longer fit; the summary names the messages that it was made of."""
    chat = await forgetful.session("facts")
    async with forgetful.answering():
        await talk(forgetful, chat, SECRET, "two", "three", "four")
        memory = await memory_of(forgetful, chat)
        await talk(forgetful, chat, "five")
        *_, answer = await forgetful.answers(chat)

    assert memory.first == 1 and 4 <= memory.upto <= 6 and memory.rev == 1
    assert SECRET in memory.text
    assert f"in short:\n{memory.text}" in answer.body


async def test_memory_grows_with_the_session(forgetful: AssistantWorld) -> None:
    """Each summary is made from the previous one and the new messages."""
    chat = await forgetful.session("echo")
    async with forgetful.answering():
        await talk(forgetful, chat, *(f"number {n}" for n in range(1, 10)))
        memory = await memory_of(forgetful, chat)

    assert memory.first == 1 and memory.rev >= 2
    assert memory.upto >= 10
    assert "number 1" in memory.text


@pytest.mark.parametrize("how", ["delete", "edit", "hide"])
async def test_memory_goes_when_what_it_cites_is_taken_back(
    forgetful: AssistantWorld, how: str
) -> None:
    """By whomever and for whomever; what is made anew knows nothing of it."""
    chat = await forgetful.session("echo")
    async with forgetful.answering():
        await talk(forgetful, chat, SECRET, *(f"number {n}" for n in range(2, 8)))
        assert SECRET in (await memory_of(forgetful, chat)).text
        # The answer that repeats it goes with it: here both are the user's to take back.
        for seq in (1, 2):
            if how == "hide" or seq == 2:
                await forgetful.hide(chat, seq)
            else:
                await forgetful.change(chat, seq, how, "nothing")

        async def is_without() -> bool:
            memory = await forgetful.container.get(CompanionContainer).summaries.find(chat)
            return memory is None or SECRET not in memory.text

        await eventually(is_without)
        await forgetful.idle()
        await talk(forgetful, chat, "go on")
        await forgetful.idle()
        memory = await memory_of(forgetful, chat)

    assert SECRET not in memory.text and "number 2" in memory.text


async def test_memory_stays_when_something_later_is_taken_back(
    forgetful: AssistantWorld,
) -> None:
    """Only what is cited counts."""
    chat = await forgetful.session("echo")
    async with forgetful.answering():
        await talk(forgetful, chat, *(f"number {n}" for n in range(1, 6)))
        memory = await memory_of(forgetful, chat)
        await forgetful.change(chat, memory.upto + 1, "delete")
        await forgetful.idle()

        assert await forgetful.container.get(CompanionContainer).summaries.find(chat) == memory


async def test_memory_of_a_long_session_is_made_anew_from_its_pages(
    forgetful: AssistantWorld,
) -> None:
    """A session that lost its summary reads back, and no further than it may."""
    chat = await forgetful.session("facts", context_tokens_max=256, answer_tokens_max=200)
    await forgetful.say(chat, *(f"number {n}" for n in range(1, 251)))
    async with forgetful.answering():
        await forgetful.wait_answers(chat, 1)
        memory = await memory_of(forgetful, chat)

    assert memory.first == 1 and memory.upto >= 240


async def test_memory_that_cannot_be_made_costs_no_answer(forgetful: AssistantWorld) -> None:
    """The oldest turns are left out, and it is tried again."""
    chat = await forgetful.session("dies:1")
    async with forgetful.answering():
        await talk(forgetful, chat, *(f"number {n}" for n in range(1, 7)))

    assert await forgetful.container.get(CompanionContainer).summaries.find(chat) is None
    assert len(await forgetful.answers(chat)) == 6


async def test_memory_row_is_written_over_the_one_that_was_read_only(
    forgetful: AssistantWorld,
) -> None:
    """A worker that slept does not bring back what was dropped, and a retry changes nothing."""
    rows, chat = forgetful.container.get(CompanionContainer).summaries, ChatId("C")
    first, second = Memory(Seq(1), Seq(4), "one", 1), Memory(Seq(1), Seq(8), "two", 2)

    assert await rows.put(chat, first) and await rows.put(chat, first)
    assert not await rows.put(chat, Memory(Seq(1), Seq(5), "other", 1))
    assert await rows.put(chat, second)
    assert not await rows.put(chat, first)
    assert await rows.find(chat) == second
    await rows.drop(chat)
    assert not await rows.put(chat, Memory(Seq(1), Seq(9), "three", 3))
    assert await rows.find(chat) is None
