"""The persister's lease: one writes, and who slept past it neither writes nor moves anything."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.clock import SystemClock
from tests.integration.warm.support import Faults, Tables
from tests.integration.workers.support import (
    Gateway,
    bodies,
    end,
    holder_of,
    is_drained,
    make_direct,
    open_container,
    persister_of,
    running,
    stored_of,
    texts,
    with_attributes,
)
from tests.support.servers.processes import eventually

pytest_plugins = ["tests.integration.warm.fixtures", "tests.integration.workers.fixtures"]


# Nobody's lease ends by itself here, however long this process is held up; who stands by looks
# every fifth of it.
PATIENT = {"lease_s": 20.0, "write_timeout_s": 10.0}


@pytest.fixture
async def container(redis_url: str, tables: Tables) -> AsyncIterator[StorageContainer]:
    """The parts of the first worker process."""
    async with open_container(redis_url, tables.settings, persist=PATIENT) as made:
        yield made


@contextlib.asynccontextmanager
async def other_process(redis_url: str, tables: Tables) -> AsyncIterator[StorageContainer]:
    """The parts of a second worker process."""
    async with open_container(redis_url, tables.settings, persist=PATIENT) as made:
        yield made


def writes_of(container: StorageContainer) -> Faults:
    """Watches what a process sends to DynamoDB."""
    return Faults(container.messages._client)


async def test_persist_of_two_workers_one_writes(
    container: StorageContainer, gateway: Gateway, redis_url: str, tables: Tables
) -> None:
    """The other one stands by, and takes over at once when the first one leaves in order."""
    team = await make_direct(container)
    async with other_process(redis_url, tables) as others:
        first_writes, second_writes = writes_of(container), writes_of(others)
        first = asyncio.create_task(persister_of(container, "w1").run())
        await eventually(
            lambda: container.hot.call("EXISTS", container.hot.keys.lease(0, "persist"))
        )
        async with running(persister_of(others, "w2").run()):
            await gateway.send(team, *texts(10, "one"))
            await eventually(lambda: is_drained(container))
            assert second_writes.bodies("BatchWriteItem") == []

            await end(first)
            before = len(first_writes.bodies("BatchWriteItem"))
            await gateway.send(team, *texts(10, "two"))
            await eventually(lambda: is_drained(container))

            assert len(first_writes.bodies("BatchWriteItem")) == before
            assert second_writes.bodies("BatchWriteItem")
    assert bodies(await stored_of(container, team.chat)) == [*texts(10, "one"), *texts(10, "two")]


class OwnClock(SystemClock):
    """A machine whose clock the test moves on, as if the process had slept."""

    def __init__(self) -> None:
        self.slept_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.slept_s


async def hand_lease_on(container: StorageContainer, heir: str) -> None:
    """Have the lease be another one's, as if it had ended while its holder slept."""
    lease = container.hot.keys.lease(0, "persist")
    # At once, so that the holder has no moment in which to take it again.
    await container.hot.transaction(
        ("HINCRBY", lease, "token", 1), ("HSET", lease, "owner", heir, "until_ms", 2**52)
    )


async def test_persist_zombie_that_slept_past_its_lease_does_not_write(
    container: StorageContainer, gateway: Gateway, redis_url: str, tables: Tables
) -> None:
    """It looks at its lease before it writes, finds it lost, and stands by (fault F5)."""
    clock = OwnClock()
    zombie = with_attributes(container, clock=clock)
    team = await make_direct(container)
    async with (
        other_process(redis_url, tables) as others,
        running(persister_of(zombie, "zombie").run()),
    ):
        await gateway.send(team, "first")
        await eventually(lambda: is_drained(container))
        writes = writes_of(container)
        await hand_lease_on(container, "heir")
        async with running(persister_of(others, "heir").run()):
            await eventually(lambda: holder_of(container, b"heir"))
            clock.slept_s += 60
            await gateway.send(team, *texts(30))
            await eventually(lambda: is_drained(container))

    assert writes.bodies("BatchWriteItem") == []
    assert len(await stored_of(container, team.chat)) == 31


async def test_persist_zombie_that_believes_in_its_lease_cannot_move_the_checkpoint(
    container: StorageContainer, gateway: Gateway, redis_url: str, tables: Tables
) -> None:
    """Its writes equal those of the new holder; Redis fences everything else by the token."""
    team = await make_direct(container)
    async with (
        other_process(redis_url, tables) as others,
        running(persister_of(container, "zombie").run()) as zombie,
    ):
        await gateway.send(team, "first")
        await eventually(lambda: is_drained(container))
        await hand_lease_on(container, "heir")
        async with running(persister_of(others, "heir").run()):
            await eventually(lambda: holder_of(container, b"heir"))
            await gateway.send(team, *texts(30))
            await eventually(lambda: is_drained(container))

            checkpoint = await container.hot.call("HGET", container.hot.keys.checkpoint(0), "token")
            token = await container.hot.call(
                "HGET", container.hot.keys.lease(0, "persist"), "token"
            )
            assert checkpoint == token
            assert not zombie.done()

    assert [m.seq for m in await stored_of(container, team.chat)] == list(range(1, 32))


async def test_persist_lease_lost_in_the_middle_of_a_write_is_no_crash(
    container: StorageContainer, gateway: Gateway
) -> None:
    """A worker that finds its lease lost becomes a candidate again, and goes on when it is free."""
    clock = OwnClock()
    sleepy = with_attributes(container, clock=clock)
    team = await make_direct(container)
    faults = writes_of(container)

    def fall_asleep(_: object) -> Exception:
        clock.slept_s += 60
        return ConnectionResetError("asleep")

    async with running(persister_of(sleepy).run()) as task:
        await gateway.send(team, "first")
        await eventually(lambda: is_drained(container))
        lease = container.hot.keys.lease(0, "persist")
        faults.add("BatchWriteItem", *[fall_asleep] * 5)
        await gateway.send(team, *texts(5))
        await container.hot.call("HSET", lease, "owner", "other", "until_ms", 2**52)
        await asyncio.sleep(0)
        await container.hot.call("HSET", lease, "until_ms", 0)

        await eventually(lambda: is_drained(container))

        assert not task.done()
    assert len(await stored_of(container, team.chat)) == 6


async def test_persist_gives_its_lease_back_when_it_is_stopped(container: StorageContainer) -> None:
    """No process waits for the lease of a worker that stopped in order."""
    task = asyncio.create_task(persister_of(container).run())
    await eventually(lambda: holder_of(container, b"w1"))

    await end(task)

    assert await holder_of(container, b"")
