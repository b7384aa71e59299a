"""Indexers that are killed or stopped: the next one makes all messages searchable."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
import pytest_asyncio

from chatserver.dev.servers import Server
from tests.integration.features.privacy.support import wait_for_erasure
from tests.integration.features.search.support import (
    ENGINES,
    NewPerson,
    SearchStack,
    open_search_stack,
    search_texts,
    wait_for_results,
)
from tests.support.servers.processes import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")
# The failpoints of an indexer, in the order in which it reaches them.
STEPS = (
    "search.before_sweep_apply",
    "search.after_sweep_apply",
    "search.before_apply",
    "search.in_apply",  # between deletions and insertions, which are two commits in LanceDB
    "search.after_apply",
    "search.after_record",
)


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=ENGINES)
async def search_stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SearchStack]:
    """A stack with a search index, without a running indexer."""
    folder = tmp_path_factory.mktemp(f"search-{request.param}")
    async with open_search_stack(folder, request.param) as made:
        yield made


@pytest.fixture(autouse=True)
def indexers_stopped(search_stack: SearchStack) -> Iterator[None]:
    """Stop the last indexer of each test."""
    yield
    search_stack.stop_indexer()


async def wait_until_killed(
    worker: Server, meanwhile: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Wait until a process has killed itself; call `meanwhile` repeatedly until then."""
    process = worker.process
    assert process is not None

    async def has_ended() -> bool:
        if process.poll() is None and meanwhile is not None:
            await meanwhile()
        return process.poll() is not None

    await eventually(has_ended, what="the indexer has ended")
    assert process.returncode == -9


@pytest.mark.parametrize("step", STEPS)
async def test_messages_are_found_after_an_indexer_was_killed(
    search_stack: SearchStack, new_person: NewPerson, step: str
) -> None:
    """Messages, edits and deletions from before and after the kill are found."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat = await ann.open_direct(ben.user)
    edited = await ann.send(chat, "draft")
    deleted = await ann.send(chat, "cherry mistake")
    if "sweep" in step:
        search_stack.delete_position()  # a sweep runs for a new index or after a gap
    worker = search_stack.start_indexer(failpoint=step)
    await ann.send(chat, "cherry before")
    change = {"body": "cherry edited"}
    await ann.request("PATCH", f"/v1/chats/{chat}/messages/{edited}", 200, change)
    await ann.request("DELETE", f"/v1/chats/{chat}/messages/{deleted}", 200)

    async def send_another() -> None:
        """Send another message, because a sweep may have indexed all earlier ones."""
        await ann.send(chat, "one more")
        await asyncio.sleep(0.2)

    await wait_until_killed(worker, send_another)
    await ann.send(chat, "cherry after")
    search_stack.delete_leases()
    search_stack.start_indexer()
    assert len(set(await wait_for_results(ben, "cherry", 3))) == 3
    assert await search_texts(ben, "draft") == []


async def test_indexer_killed_at_any_time_loses_no_message(
    search_stack: SearchStack, new_person: NewPerson
) -> None:
    """The indexer also merges files all the time in this test."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat = await ann.open_direct(ben.user)
    for round_ in range(6):
        await search_stack.vault.stack.start_worker_async(
            "search",
            **{
                "chatserver.features.search.engines.lance.MAINTENANCE_INTERVAL_S": "0",
                "chatserver.features.search.worker.indexer.MAINTENANCE_INTERVAL_S": "0",
            },
        )
        for n in range(5):
            await ann.send(chat, f"apricot {round_} {n}")
        deleted = await ann.send(chat, "apricot deleted")
        await ann.request("DELETE", f"/v1/chats/{chat}/messages/{deleted}", 200)
        if round_ % 2:  # the indexer has indexed some messages and merges files
            await wait_for_results(ben, f'"apricot {round_} 0"')
        search_stack.stop_indexer()
    search_stack.start_indexer()

    found = await wait_for_results(ben, "apricot", 30)

    assert len(set(found)) == 30


async def test_erasure_is_completed_after_the_indexer_was_killed(
    search_stack: SearchStack, new_person: NewPerson
) -> None:
    """The request stays in Redis until no file has the user's text."""
    zoe, ben = await new_person("zoe"), await new_person("ben")
    mark = f"secret{secrets.token_hex(6)}"
    chat = await zoe.open_direct(ben.user)
    await zoe.send(chat, mark)
    worker = search_stack.start_indexer(failpoint="search.in_erasure")
    await wait_for_results(ben, mark)
    erasures = search_stack.vault.start_worker("erasures")

    receipt = (await zoe.request("DELETE", "/v1/me", 202, {}))["receipt"]
    await wait_until_killed(worker)
    search_stack.delete_leases()
    search_stack.start_indexer()
    await wait_for_erasure(ben.client, receipt)

    assert search_stack.find_files_with(mark) == []
    assert search_stack.find_files_with(zoe.user) == []
    erasures.kill()


async def test_indexer_that_was_down_for_long_catches_up(
    search_stack: SearchStack, new_person: NewPerson
) -> None:
    """The backlog has been trimmed, so the indexer reads the chats."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat = await ann.open_direct(ben.user)
    edited = await ann.send(chat, "melon draft")
    deleted = await ann.send(chat, "melon deleted")
    search_stack.start_indexer()
    await wait_for_results(ben, "melon", 2)
    search_stack.stop_indexer()

    search_stack.delete_position()
    await ann.request("PATCH", f"/v1/chats/{chat}/messages/{edited}", 200, {"body": "melon final"})
    await ann.request("DELETE", f"/v1/chats/{chat}/messages/{deleted}", 200)
    other = await ben.open_direct(ann.user)
    await ben.send(other, "melon new")
    await eventually(lambda: not search_stack.has_waiting(), what="all entries are stored")
    search_stack.delete_position()
    successor = search_stack.start_indexer()

    assert set(await wait_for_results(ann, "melon", 2)) == {"melon final", "melon new"}
    assert b"search.catch_up_started" in successor.log_path.read_bytes()


async def test_deleted_index_is_rebuilt(search_stack: SearchStack, new_person: NewPerson) -> None:
    """An indexer without index files starts with a rebuild of all chats."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat = await ann.open_direct(ben.user)
    for n in range(3):
        await ann.send(chat, f"grape {n}")
    search_stack.start_indexer()
    await wait_for_results(ben, "grape", 3)
    search_stack.stop_indexer()

    search_stack.delete_files()
    search_stack.start_indexer()

    await wait_for_results(ben, "grape", 3)
