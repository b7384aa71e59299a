"""An indexer killed at any step, or stopped for long, leaves no message unfindable."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from chatserver.dev.servers import Server
from tests.integration.features.privacy.support import wait_for_erasure
from tests.integration.features.search.fixtures import ENGINES
from tests.integration.features.search.support import (
    Library,
    NewPerson,
    open_library,
    open_people,
    texts,
    until_found,
)
from tests.support.servers.processes import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")
# In the order in which an indexer comes by.
STEPS = (
    "search.before_sweep_apply",
    "search.after_sweep_apply",
    "search.before_apply",
    "search.in_apply",  # between removals and the rest: two commits of LanceDB
    "search.after_apply",
    "search.after_record",
)


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=ENGINES)
async def quiet_library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Library]:
    """A stack whose indexers the tests start."""
    folder = tmp_path_factory.mktemp(f"quiet-{request.param}")
    async with open_library(folder, request.param) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def new_person(quiet_library: Library) -> AsyncIterator[NewPerson]:
    async with open_people(quiet_library) as make:
        yield make


async def until_killed(
    worker: Server, meanwhile: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Wait until a process has killed itself; call `meanwhile` again and again until then."""
    process = worker.process
    assert process is not None

    async def has_ended() -> bool:
        if process.poll() is None and meanwhile is not None:
            await meanwhile()
        return process.poll() is not None

    await eventually(has_ended, what="the end of the indexer")
    assert process.returncode == -9


@pytest.mark.parametrize("step", STEPS)
async def test_killed_indexer_is_followed_by_one_that_finds_all(
    quiet_library: Library, new_person: NewPerson, step: str
) -> None:
    """With messages, edits and deletions before and after the kill."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat = await ann.open_direct(ben.user)
    edited = await ann.say(chat, "draft")
    deleted = await ann.say(chat, "cherry mistake")
    if "sweep" in step:
        quiet_library.forget_place()  # only a new index and a gap are swept
    worker = quiet_library.start_indexer(failpoint=step)
    await ann.say(chat, "cherry said before")
    change = {"body": "cherry edited"}
    await ann.ask("PATCH", f"/v1/chats/{chat}/messages/{edited}", 200, change)
    await ann.ask("DELETE", f"/v1/chats/{chat}/messages/{deleted}", 200)

    async def say_more() -> None:
        """For an indexer that started late: it has found all of the above in its sweep."""
        await ann.say(chat, "one more")
        await asyncio.sleep(0.2)

    await until_killed(worker, say_more)
    await ann.say(chat, "cherry said after")
    quiet_library.forget_leases()
    successor = quiet_library.start_indexer()
    try:
        assert len(set(await until_found(ben, "cherry", 3))) == 3
        assert await texts(ben, "draft") == []
    finally:
        successor.kill()
        quiet_library.forget_leases()


async def test_indexer_killed_at_any_moment_loses_nothing(
    quiet_library: Library, new_person: NewPerson
) -> None:
    """Also while it merges files, which it does all the time here."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat = await ann.open_direct(ben.user)
    for round_ in range(6):
        worker = await quiet_library.vault.stack.bring_up_worker(
            "search",
            **{
                "chatserver.features.search.engines.lance.MAINTAIN_S": "0",
                "chatserver.features.search.worker.indexer.UPKEEP_S": "0",
            },
        )
        for n in range(5):
            await ann.say(chat, f"apricot {round_} {n}")
        deleted = await ann.say(chat, "apricot deleted")
        await ann.ask("DELETE", f"/v1/chats/{chat}/messages/{deleted}", 200)
        if round_ % 2:  # it has applied some, and merges files now
            await until_found(ben, f'"apricot {round_} 0"')
        worker.kill()
        quiet_library.forget_leases()
    successor = quiet_library.start_indexer()

    found = await until_found(ben, "apricot", 30)

    assert len(set(found)) == 30
    successor.kill()
    quiet_library.forget_leases()


async def test_erasure_continues_after_a_kill(
    quiet_library: Library, new_person: NewPerson
) -> None:
    """The request stays in Redis until no file has the user's words."""
    zoe, ben = await new_person("zoe"), await new_person("ben")
    mark = f"secret{secrets.token_hex(6)}"
    chat = await zoe.open_direct(ben.user)
    await zoe.say(chat, mark)
    worker = quiet_library.start_indexer(failpoint="search.in_erasure")
    await until_found(ben, mark)
    erasures = quiet_library.vault.start_worker("erasures")

    receipt = (await zoe.ask("DELETE", "/v1/me", 202, {}))["receipt"]
    await until_killed(worker)
    quiet_library.forget_leases()
    successor = quiet_library.start_indexer()
    await wait_for_erasure(ben.client, receipt)

    assert quiet_library.has_bytes(mark) == []
    assert quiet_library.has_bytes(zoe.user) == []
    for process in (erasures, successor):
        process.kill()
    quiet_library.forget_leases()


async def test_indexer_that_was_away_for_long_catches_up(
    quiet_library: Library, new_person: NewPerson
) -> None:
    """Entries of the backlog were trimmed meanwhile: the chats themselves are read."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat = await ann.open_direct(ben.user)
    edited = await ann.say(chat, "melon draft")
    deleted = await ann.say(chat, "melon deleted")
    worker = quiet_library.start_indexer()
    await until_found(ben, "melon", 2)
    worker.kill()
    quiet_library.forget_leases()

    quiet_library.forget_place()
    await ann.ask("PATCH", f"/v1/chats/{chat}/messages/{edited}", 200, {"body": "melon final"})
    await ann.ask("DELETE", f"/v1/chats/{chat}/messages/{deleted}", 200)
    other = await ben.open_direct(ann.user)
    await ben.say(other, "melon new")
    await eventually(lambda: not quiet_library.has_waiting(), what="all entries are stored")
    quiet_library.forget_place()
    successor = quiet_library.start_indexer()

    assert set(await until_found(ann, "melon", 2)) == {"melon final", "melon new"}
    assert b"search.catch_up_started" in successor.log_path.read_bytes()
    successor.kill()
    quiet_library.forget_leases()


async def test_lost_index_is_built_again(quiet_library: Library, new_person: NewPerson) -> None:
    """Without its files, the indexer begins with a rebuild of all chats."""
    ann, ben = await new_person("ann"), await new_person("ben")
    chat = await ann.open_direct(ben.user)
    for n in range(3):
        await ann.say(chat, f"grape {n}")
    worker = quiet_library.start_indexer()
    await until_found(ben, "grape", 3)
    worker.kill()
    quiet_library.forget_leases()

    quiet_library.delete_files()
    again = quiet_library.start_indexer()

    await until_found(ben, "grape", 3)
    again.kill()
    quiet_library.forget_leases()
