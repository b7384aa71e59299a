"""The user memory of companions in the HTTP API and the Python SDK, on real servers."""

from __future__ import annotations

import pytest

from chatserver.client import ChatClient
from chatserver.dev.servers import Server
from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, UserId
from chatserver.errors import BadRequest, NotFound
from chatserver.features.companions.user_memory import (
    ExtractionTimes,
    MemoryChange,
    Source,
    UserMemory,
    apply_changes,
)
from chatserver.features.companions.warm.user_memories import MemoryRows
from chatserver.warm.dynamo.connections import open_dynamodb
from tests.integration.features.companions.support import make_companion
from tests.support.rawchat import RawChat
from tests.support.stack import Stack

YEAR_MS = 365 * 86_400_000
NOW_MS = 4_000_000_000_000  # in the future, so that nothing has expired
OLD, NEW = ChatId("01KAJ4Q7R8M2E5S9T0B3C6D8FH"), ChatId("01KAJ5W3N0TBJ8QW6X1V7ZC2YD")


async def write_facts(stack: Stack, user: UserId, companion: CompanionId) -> None:
    """Write three facts from two sessions, as a worker does."""

    def change(memory: UserMemory) -> UserMemory:
        for number, (chat, fact) in enumerate([(OLD, "one"), (OLD, "two"), (NEW, "three")]):
            source = Source(chat, number + 1, number + 1)
            times = ExtractionTimes(NOW_MS + number, YEAR_MS)
            memory = apply_changes(memory, [MemoryChange("add", fact)], source, times)
        return memory

    async with open_dynamodb(stack.warm) as dynamodb:
        await MemoryRows(dynamodb).update(user, companion, change)


async def test_user_lists_deletes_and_disables_a_memory(
    stack: Stack, api: Server, alice: RawChat, bob: RawChat
) -> None:
    """The user deletes an entry, a session and everything. Another user has no access."""
    ada = (await make_companion(stack, "ai-mnemo", "Mnemo")).id
    await write_facts(stack, UserId(alice.user), ada)
    url = f"ws://127.0.0.1:{stack.port}/"
    async with (
        ChatClient(url, stack.token(alice.user), api_url=api.endpoint) as client,
        ChatClient(url, stack.token(bob.user), api_url=api.endpoint) as other,
    ):
        memory = await client.memory(ada)
        foreign = await other.memory(ada)
        with pytest.raises(NotFound):
            await other.delete_memory(ada, entry=memory.entries[0].id)
        with pytest.raises(NotFound):
            await client.set_memory_enabled("ai-nobody", False)
        await client.delete_memory(ada, entry=memory.entries[1].id)
        one = await client.memory(ada)
        await client.delete_memory(ada, chat=OLD)
        session = await client.memory(ada)
        off = await client.set_memory_enabled(ada, False)
        await client.delete_memory(ada)
        await client.delete_memory(ada)
        nothing = await client.memory(ada)

    assert memory.enabled and foreign.entries == []
    assert [(entry.kind, entry.text) for entry in memory.entries] == [
        ("fact", "three"),
        ("fact", "two"),
        ("fact", "one"),
    ]
    assert memory.entries[0].chats == [NEW]
    assert [entry.text for entry in one.entries] == ["three", "one"]
    assert [entry.text for entry in session.entries] == ["three"]
    assert not off.enabled and [entry.text for entry in off.entries] == ["three"]
    assert (nothing.enabled, nothing.entries) == (False, [])


async def test_session_deleted_with_forget_leaves_no_memory(
    stack: Stack, api: Server, alice: RawChat
) -> None:
    ada = (await make_companion(stack, "ai-lethe", "Lethe")).id
    url = f"ws://127.0.0.1:{stack.port}/"
    async with ChatClient(url, stack.token(alice.user), api_url=api.endpoint) as client:
        chat = (await client.create_session(ada)).id

        def change(memory: UserMemory) -> UserMemory:
            times, source = ExtractionTimes(NOW_MS, YEAR_MS), Source(ChatId(chat), 1, 1)
            return apply_changes(memory, [MemoryChange("add", "secret")], source, times)

        async with open_dynamodb(stack.warm) as dynamodb:
            rows = MemoryRows(dynamodb)
            await rows.update(UserId(alice.user), ada, change)
        before = await client.memory(ada)
        await client.delete_session(ada, forget=True)
        after = await client.memory(ada)

    assert len(before.entries) == 1 and after.entries == []


async def test_memory_without_api_url_raises_an_error(stack: Stack, alice: RawChat) -> None:
    """The error names the missing argument."""
    url = f"ws://127.0.0.1:{stack.port}/"
    async with ChatClient(url, stack.token(alice.user)) as client:
        with pytest.raises(BadRequest, match="api_url"):
            await client.memory("ai-ada")
