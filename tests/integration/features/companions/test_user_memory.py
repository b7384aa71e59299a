"""Memory of a user across sessions, and how the user deletes it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest

from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, Ref
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.options import Options
from chatserver.features.companions.user_memory import FINISHED, NOTES_HEAD, UserMemory
from chatserver.features.companions.warm.memories import TRIES_MAX
from tests.integration.features.companions.assistant_support import (
    AssistantWorld,
    open_assistant_world,
)
from tests.integration.features.companions.test_worker_kill import die_at
from tests.integration.warm.support import Tables
from tests.support.servers.processes import eventually

pytest_plugins = ["tests.integration.warm.fixtures"]


@pytest.fixture
async def world(redis_url: str, tables: Tables) -> AsyncIterator[AssistantWorld]:
    """A process that answers."""
    async with open_assistant_world(redis_url, tables.settings) as made:
        yield made


async def say(world: AssistantWorld, chat: ChatId, text: str) -> str:
    """Say something in a session and return the answer."""
    before = len(await world.answers(chat))
    await world.say(chat, text)
    return (await world.wait_answers(chat, before + 1))[-1].body


async def renew(world: AssistantWorld, companion: CompanionId) -> ChatId:
    """End the session and begin another."""
    sessions = world.container.get(CompanionContainer).sessions
    opened = await sessions.renew(world.alice, companion, Ref(secrets.token_hex(6)))
    return opened.session.chat


async def memory_of(world: AssistantWorld, companion: CompanionId) -> UserMemory:
    return await world.container.get(CompanionContainer).memories.get(world.alice, companion)


async def wait_read(world: AssistantWorld, companion: CompanionId, chat: ChatId) -> UserMemory:
    """Wait until an ended session was read to its end."""

    async def is_read() -> bool:
        return (await memory_of(world, companion)).get_cursor(chat) == FINISHED

    await eventually(is_read, what="the memory of the session")
    return await memory_of(world, companion)


def facts(memory: UserMemory) -> list[str]:
    return sorted(entry.text for entry in memory.entries if entry.kind == "fact")


async def test_new_session_has_the_memory_of_the_one_before(world: AssistantWorld) -> None:
    """The first response already has it, as data between delimiters."""
    ada = await world.companion("memory")
    first = await world.begin(ada)
    async with world.answering():
        await say(world, first, "My name is Lin")
        second = await renew(world, ada)
        answer = await say(world, second, "Who am I?")
        memory = await wait_read(world, ada, first)

    assert NOTES_HEAD.strip() in answer
    assert "- The user wrote: My name is Lin\n" in answer
    assert facts(memory) == ["The user wrote: My name is Lin"]
    assert [entry.sources for entry in memory.entries] == [((first, 1, 2),)] * 2


async def test_other_users_and_companions_do_not_share_a_memory(world: AssistantWorld) -> None:
    """A memory belongs to one user and one companion."""
    ada, bob = await world.companion("memory"), await world.companion("memory")
    first = await world.begin(ada)
    async with world.answering():
        await say(world, first, "My name is Lin")
        await renew(world, ada)
        await wait_read(world, ada, first)
        answer = await say(world, await world.begin(bob), "Who am I?")

    assert "Lin" not in answer
    assert (await memory_of(world, bob)).entries == ()


async def test_memory_is_updated_within_a_long_session(redis_url: str, tables: Tables) -> None:
    """After N messages of the user; the end of the session adds the rest."""
    async with open_assistant_world(redis_url, tables.settings, memory_messages=2) as world:
        ada = await world.companion("memory")
        chat = await world.begin(ada)
        async with world.answering():
            await say(world, chat, "one")
            await say(world, chat, "two")

            async def is_updated() -> bool:
                return len(facts(await memory_of(world, ada))) == 2

            await eventually(is_updated, what="two facts")
            await say(world, chat, "three")
            await renew(world, ada)
            memory = await wait_read(world, ada, chat)

    assert facts(memory) == [f"The user wrote: {text}" for text in ("one", "three", "two")]
    (summary,) = [entry for entry in memory.entries if entry.kind == "summary"]
    assert summary.sources == ((chat, 1, 6),)


@pytest.mark.parametrize(
    "place",
    ["memory.before_model:kill", "memory.after_model:kill", "memory.after_write:kill"],
)
async def test_extraction_killed_anywhere_is_repeated_without_duplicates(
    world: AssistantWorld, place: str
) -> None:
    """The end of a session is read by the next worker, from where the last one wrote."""
    ada = await world.companion("memory")
    chat = await world.begin(ada)
    async with world.answering():
        await say(world, chat, "My name is Lin")
        await say(world, chat, "I like tea")
    await renew(world, ada)
    await die_at(world, place)
    async with world.answering("a2"):
        memory = await wait_read(world, ada, chat)
        await world.idle()

    assert facts(memory) == ["The user wrote: I like tea", "The user wrote: My name is Lin"]
    assert len(memory.entries) == 3
    assert (await memory_of(world, ada)).rev == memory.rev


async def test_end_that_redis_lost_is_read_by_the_next_session(world: AssistantWorld) -> None:
    """The process that ended the session died before it recorded the end."""
    ada = await world.companion("memory")
    first = await world.begin(ada)
    async with world.answering():
        await say(world, first, "My name is Lin")
    second = await renew(world, ada)
    keys = world.hot.keys
    await world.hot.call("DEL", keys.asked(0), keys.asking(first))
    async with world.answering("a2"):
        answer = await say(world, second, "Who am I?")

    assert "My name is Lin" in answer


@pytest.mark.parametrize("write_tries", [1, TRIES_MAX])
async def test_sessions_that_end_together_are_all_remembered(
    world: AssistantWorld, monkeypatch: pytest.MonkeyPatch, write_tries: int
) -> None:
    """Extractions of several sessions write to one item; one that loses each race is repeated."""
    path = "chatserver.features.companions."
    ada = await world.companion("memory")
    chats = [await world.begin(ada)]
    async with world.answering():
        for number in range(5):
            await say(world, chats[-1], f"fact {number}")
            if number < 4:
                chats.append(await renew(world, ada))
                await world.container.get(CompanionContainer).memories.delete_all(world.alice, ada)
    # All of them are read again, at once.
    rows = world.container.get(CompanionContainer).memory_rows
    await rows.update(world.alice, ada, lambda stored: UserMemory(world.alice, ada, rev=stored.rev))
    chats.append(await renew(world, ada))
    monkeypatch.setattr(f"{path}warm.memories.TRIES_MAX", write_tries)
    monkeypatch.setattr(f"{path}worker.assistant.AGAIN_S", 0.05)
    for chat in chats[:-1]:
        await world.asked.record_ended(chat)
    async with world.answering("a2"):
        for chat in chats[:-1]:
            memory = await wait_read(world, ada, chat)

    assert facts(memory) == [f"The user wrote: fact {number}" for number in range(5)]


async def test_deleted_message_of_an_ended_session_is_forgotten(world: AssistantWorld) -> None:
    """The session is read again, without the message."""
    ada = await world.companion("memory")
    chat = await world.begin(ada)
    async with world.answering():
        await say(world, chat, "My PIN is 4711")
        await say(world, chat, "I like tea")
        await renew(world, ada)
        await wait_read(world, ada, chat)
        await world.change(chat, 1, "delete")

        async def is_forgotten() -> bool:
            return facts(await memory_of(world, ada)) == ["The user wrote: I like tea"]

        await eventually(is_forgotten, what="the deleted message forgotten")
        memory = await wait_read(world, ada, chat)
    assert "4711" not in repr(memory)


async def test_switched_off_nothing_is_stored_or_used(world: AssistantWorld) -> None:
    """Messages of that time are not read later, either."""
    ada, memories = (
        await world.companion("memory"),
        world.container.get(CompanionContainer).memories,
    )
    first = await world.begin(ada)
    async with world.answering():
        await say(world, first, "My name is Lin")
        second = await renew(world, ada)
        await wait_read(world, ada, first)
        await memories.switch(world.alice, ada, is_on=False)
        answer = await say(world, second, "I am ill")
        third = await renew(world, ada)
        await wait_read(world, ada, second)
        await memories.switch(world.alice, ada, is_on=True)
        again = await say(world, third, "Hello")
        await renew(world, ada)
        memory = await wait_read(world, ada, third)

    assert "Lin" not in answer
    assert "Lin" in again and "ill" not in again
    assert facts(memory) == ["The user wrote: Hello", "The user wrote: My name is Lin"]


async def test_user_deletes_an_entry_a_session_and_all(world: AssistantWorld) -> None:
    """Deleted memories are in no later prompt."""
    ada, memories = (
        await world.companion("memory"),
        world.container.get(CompanionContainer).memories,
    )
    chat = await world.begin(ada)
    async with world.answering():
        for text in ("one", "two", "three"):
            await say(world, chat, text)
            ended, chat = chat, await renew(world, ada)
            await wait_read(world, ada, ended)
        memory = await memory_of(world, ada)
        (one,) = [entry for entry in memory.entries if entry.text == "The user wrote: one"]
        await memories.delete_entry(world.alice, ada, one.id)
        await memories.delete_session(world.alice, ada, ended)
        assert facts(await memory_of(world, ada)) == ["The user wrote: two"]
        assert "wrote: two" in (answer := await say(world, chat, "four"))
        await memories.delete_all(world.alice, ada)
        ended, chat = chat, await renew(world, ada)
        memory = await wait_read(world, ada, ended)

    assert "wrote: one" not in answer and "wrote: three" not in answer
    assert memory.entries == ()


async def test_empty_session_leaves_no_item(world: AssistantWorld) -> None:
    """And the next session does not wait for it."""
    ada = await world.companion("memory")
    await world.begin(ada)
    second = await renew(world, ada)
    async with world.answering():
        await say(world, second, "hello")
        await world.idle()

    assert (await memory_of(world, ada)).rev == 0


async def test_companion_without_memory_stores_nothing(world: AssistantWorld) -> None:
    """It is an option of the companion."""
    ada = await world.companion("memory", options=Options(memory=False))
    first = await world.begin(ada)
    async with world.answering():
        await say(world, first, "My name is Lin")
        answer = await say(world, await renew(world, ada), "Who am I?")
        await world.idle()

    assert "Lin" not in answer
    assert (await memory_of(world, ada)).rev == 0


async def test_model_that_is_down_is_given_up(
    world: AssistantWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After several tries; the session counts as read, and nothing waits for it."""
    path = "chatserver.features.companions.worker"
    monkeypatch.setattr(f"{path}.memory_extraction.TRIES_MAX", 1)
    monkeypatch.setattr(f"{path}.assistant.AGAIN_S", 0.01)
    ada = await world.companion("down")
    chat = await world.begin(ada)
    async with world.answering():
        await say(world, chat, "hello")
        await renew(world, ada)
        memory = await wait_read(world, ada, chat)
        await world.idle()

    assert memory.entries == ()
