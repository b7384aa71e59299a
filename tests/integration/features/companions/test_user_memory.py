"""The memory of a user across sessions: extraction, use and deletion."""

from __future__ import annotations

import secrets

import pytest

from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, Ref
from chatserver.features.companions.companion_options import CompanionOptions
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.keys import CompanionKeys
from chatserver.features.companions.user_memory import FINISHED, NOTES_HEAD, UserMemory
from chatserver.features.companions.warm.user_memories import TRIES_MAX
from tests.integration.features.companions.assistant_support import (
    AssistantWorld,
    open_assistant_world,
)
from tests.integration.features.companions.test_worker_kill import kill_worker_at
from tests.integration.warm.support import Tables
from tests.support.servers.processes import eventually, eventually_equal

KEYS = CompanionKeys(1)


async def send_and_wait(world: AssistantWorld, chat: ChatId, text: str) -> str:
    before = len(await world.responses(chat))
    await world.send(chat, text)
    return (await world.wait_for_responses(chat, before + 1))[-1].body


async def renew(world: AssistantWorld, companion: CompanionId) -> ChatId:
    """End the session and create a new one."""
    sessions = world.container.get(CompanionContainer).sessions
    opened = await sessions.renew(world.alice, companion, Ref(secrets.token_hex(6)))
    return opened.session.chat


async def memory_of(world: AssistantWorld, companion: CompanionId) -> UserMemory:
    return await world.container.get(CompanionContainer).memories.get(world.alice, companion)


async def wait_until_extracted(
    world: AssistantWorld, companion: CompanionId, chat: ChatId
) -> UserMemory:
    """Wait until an ended session is fully extracted; return the memory."""

    async def is_extracted() -> bool:
        return (await memory_of(world, companion)).get_cursor(chat) == FINISHED

    await eventually(is_extracted, what="the session is extracted")
    return await memory_of(world, companion)


def facts(memory: UserMemory) -> list[str]:
    return sorted(entry.text for entry in memory.entries if entry.kind == "fact")


async def test_new_session_has_the_memory_of_the_previous_one(world: AssistantWorld) -> None:
    """The first response already has it, as delimited data in the prompt."""
    ada = await world.companion("memory")
    first = await world.begin(ada)
    async with world.running_worker():
        await send_and_wait(world, first, "My name is Lin")
        second = await renew(world, ada)
        answer = await send_and_wait(world, second, "Who am I?")
        memory = await wait_until_extracted(world, ada, first)

    assert NOTES_HEAD.strip() in answer
    assert "- The user wrote: My name is Lin\n" in answer
    assert facts(memory) == ["The user wrote: My name is Lin"]
    assert [entry.sources for entry in memory.entries] == [((first, 1, 2),)] * 2


async def test_other_users_and_companions_do_not_share_a_memory(world: AssistantWorld) -> None:
    """A memory belongs to one user and one companion."""
    ada, bob = await world.companion("memory"), await world.companion("memory")
    first = await world.begin(ada)
    async with world.running_worker():
        await send_and_wait(world, first, "My name is Lin")
        await renew(world, ada)
        await wait_until_extracted(world, ada, first)
        answer = await send_and_wait(world, await world.begin(bob), "Who am I?")

    assert "Lin" not in answer
    assert (await memory_of(world, bob)).entries == ()


async def test_memory_is_updated_within_a_long_session(redis_url: str, tables: Tables) -> None:
    """It is updated after every two messages here; the end of the session adds the rest."""
    async with open_assistant_world(redis_url, tables.settings, memory_messages=2) as world:
        ada = await world.companion("memory")
        chat = await world.begin(ada)
        async with world.running_worker():
            await send_and_wait(world, chat, "one")
            await send_and_wait(world, chat, "two")

            await eventually_equal(lambda: memory_of(world, ada), 2, of=lambda it: len(facts(it)))
            await send_and_wait(world, chat, "three")
            await renew(world, ada)
            memory = await wait_until_extracted(world, ada, chat)

    assert facts(memory) == [f"The user wrote: {text}" for text in ("one", "three", "two")]
    (summary,) = [entry for entry in memory.entries if entry.kind == "summary"]
    assert summary.sources == ((chat, 1, 6),)


@pytest.mark.parametrize(
    "failpoint",
    ["memory.before_model:kill", "memory.after_model:kill", "memory.after_write:kill"],
)
async def test_extraction_killed_at_a_step_is_repeated_without_duplicates(
    world: AssistantWorld, failpoint: str
) -> None:
    """The next worker continues after the last write."""
    ada = await world.companion("memory")
    chat = await world.begin(ada)
    async with world.running_worker():
        await send_and_wait(world, chat, "My name is Lin")
        await send_and_wait(world, chat, "I like tea")
    await renew(world, ada)
    await kill_worker_at(world, failpoint)
    async with world.running_worker("a2"):
        memory = await wait_until_extracted(world, ada, chat)
        await world.wait_until_idle()

    assert facts(memory) == ["The user wrote: I like tea", "The user wrote: My name is Lin"]
    assert len(memory.entries) == 3
    assert (await memory_of(world, ada)).rev == memory.rev


async def test_ended_session_lost_in_redis_is_extracted_by_the_next_one(
    world: AssistantWorld,
) -> None:
    """A process may be killed after it ends a session and before it records the end."""
    ada = await world.companion("memory")
    first = await world.begin(ada)
    async with world.running_worker():
        await send_and_wait(world, first, "My name is Lin")
    second = await renew(world, ada)
    await world.hot.call("DEL", KEYS.pending(0), KEYS.response(first))
    async with world.running_worker("a2"):
        answer = await send_and_wait(world, second, "Who am I?")

    assert "My name is Lin" in answer


@pytest.mark.parametrize("write_tries", [1, TRIES_MAX])
async def test_sessions_that_end_together_are_all_extracted(
    world: AssistantWorld, monkeypatch: pytest.MonkeyPatch, write_tries: int
) -> None:
    """Extractions write to the same item; those that lose every race are repeated."""
    path = "chatserver.features.companions."
    ada = await world.companion("memory")
    chats = [await world.begin(ada)]
    async with world.running_worker():
        for number in range(5):
            await send_and_wait(world, chats[-1], f"fact {number}")
            if number < 4:
                chats.append(await renew(world, ada))
                await world.container.get(CompanionContainer).memories.delete_all(world.alice, ada)
    # Clear the memory, so that all sessions are extracted again concurrently.
    rows = world.container.get(CompanionContainer).memory_rows
    await rows.update(world.alice, ada, lambda stored: UserMemory(world.alice, ada, rev=stored.rev))
    chats.append(await renew(world, ada))
    monkeypatch.setattr(f"{path}warm.user_memories.TRIES_MAX", write_tries)
    monkeypatch.setattr(f"{path}worker.assistant_worker.RETRY_S", 0.05)
    for chat in chats[:-1]:
        await world.pending.record_ended(chat)
    async with world.running_worker("a2"):
        for chat in chats[:-1]:
            memory = await wait_until_extracted(world, ada, chat)

    assert facts(memory) == [f"The user wrote: fact {number}" for number in range(5)]


async def test_deleted_message_of_an_ended_session_is_removed_from_memory(
    world: AssistantWorld,
) -> None:
    """The session is extracted again without the message."""
    ada = await world.companion("memory")
    chat = await world.begin(ada)
    async with world.running_worker():
        await send_and_wait(world, chat, "My PIN is 4711")
        await send_and_wait(world, chat, "I like tea")
        await renew(world, ada)
        await wait_until_extracted(world, ada, chat)
        await world.change(chat, 1, "delete")

        tea = ["The user wrote: I like tea"]
        await eventually_equal(lambda: memory_of(world, ada), tea, of=facts)
        memory = await wait_until_extracted(world, ada, chat)
    assert "4711" not in repr(memory)


async def test_disabled_memory_is_neither_stored_nor_used(world: AssistantWorld) -> None:
    """Messages sent while memory was disabled are not extracted later."""
    ada, memories = (
        await world.companion("memory"),
        world.container.get(CompanionContainer).memories,
    )
    first = await world.begin(ada)
    async with world.running_worker():
        await send_and_wait(world, first, "My name is Lin")
        second = await renew(world, ada)
        await wait_until_extracted(world, ada, first)
        await memories.set_enabled(world.alice, ada, is_on=False)
        answer = await send_and_wait(world, second, "I am ill")
        third = await renew(world, ada)
        await wait_until_extracted(world, ada, second)
        await memories.set_enabled(world.alice, ada, is_on=True)
        again = await send_and_wait(world, third, "Hello")
        await renew(world, ada)
        memory = await wait_until_extracted(world, ada, third)

    assert "Lin" not in answer
    assert "Lin" in again and "ill" not in again
    assert facts(memory) == ["The user wrote: Hello", "The user wrote: My name is Lin"]


async def test_user_deletes_an_entry_a_session_and_the_whole_memory(world: AssistantWorld) -> None:
    """Deleted entries are in no later prompt."""
    ada, memories = (
        await world.companion("memory"),
        world.container.get(CompanionContainer).memories,
    )
    chat = await world.begin(ada)
    async with world.running_worker():
        for text in ("one", "two", "three"):
            await send_and_wait(world, chat, text)
            ended, chat = chat, await renew(world, ada)
            await wait_until_extracted(world, ada, ended)
        memory = await memory_of(world, ada)
        (one,) = [entry for entry in memory.entries if entry.text == "The user wrote: one"]
        await memories.delete_entry(world.alice, ada, one.id)
        await memories.delete_session(world.alice, ada, ended)
        assert facts(await memory_of(world, ada)) == ["The user wrote: two"]
        assert "wrote: two" in (answer := await send_and_wait(world, chat, "four"))
        await memories.delete_all(world.alice, ada)
        ended, chat = chat, await renew(world, ada)
        memory = await wait_until_extracted(world, ada, ended)

    assert "wrote: one" not in answer and "wrote: three" not in answer
    assert memory.entries == ()


async def test_empty_session_creates_no_memory(world: AssistantWorld) -> None:
    """The next session does not wait for an extraction."""
    ada = await world.companion("memory")
    await world.begin(ada)
    second = await renew(world, ada)
    async with world.running_worker():
        await send_and_wait(world, second, "hello")
        await world.wait_until_idle()

    assert (await memory_of(world, ada)).rev == 0


async def test_companion_without_memory_stores_nothing(world: AssistantWorld) -> None:
    """Memory is an option of the companion."""
    ada = await world.companion("memory", options=CompanionOptions(memory=False))
    first = await world.begin(ada)
    async with world.running_worker():
        await send_and_wait(world, first, "My name is Lin")
        answer = await send_and_wait(world, await renew(world, ada), "Who am I?")
        await world.wait_until_idle()

    assert "Lin" not in answer
    assert (await memory_of(world, ada)).rev == 0


async def test_extraction_with_unavailable_model_is_abandoned(
    world: AssistantWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a limited number of attempts, the session counts as extracted."""
    path = "chatserver.features.companions.worker"
    monkeypatch.setattr(f"{path}.memory_extraction.TRIES_MAX", 1)
    monkeypatch.setattr(f"{path}.assistant_worker.RETRY_S", 0.01)
    ada = await world.companion("down")
    chat = await world.begin(ada)
    async with world.running_worker():
        await send_and_wait(world, chat, "hello")
        await renew(world, ada)
        memory = await wait_until_extracted(world, ada, chat)
        await world.wait_until_idle()

    assert memory.entries == ()
