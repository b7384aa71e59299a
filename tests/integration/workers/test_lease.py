"""The persist worker's lease: one holder writes; a worker with an expired lease does not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from chatserver.container.storage import StorageContainer
from tests.integration.warm.support import Faults, Tables
from tests.integration.workers.support import (
    Gateway,
    bodies,
    end,
    is_drained,
    is_lease_holder,
    make_direct,
    open_container,
    persister_of,
    running,
    stored_of,
    texts,
    with_attributes,
)
from tests.support.fake_clocks import ShiftedClock
from tests.support.servers.processes import eventually

# No lease expires in these tests, even if this process stalls. A standby worker checks it every
# fifth of `lease_s`.
PATIENT = {"lease_s": 20.0, "write_timeout_s": 10.0}


@pytest.fixture
async def container(redis_url: str, tables: Tables) -> AsyncIterator[StorageContainer]:
    """The components of the first worker process."""
    async with open_container(redis_url, tables.settings, persist=PATIENT) as made:
        yield made


@contextlib.asynccontextmanager
async def other_process(redis_url: str, tables: Tables) -> AsyncIterator[StorageContainer]:
    """Open the components of a second worker process."""
    async with open_container(redis_url, tables.settings, persist=PATIENT) as made:
        yield made


def record_writes(container: StorageContainer) -> Faults:
    """Record the DynamoDB requests of a process."""
    return Faults(container.messages._client)


async def test_persist_with_two_workers_one_writes(
    container: StorageContainer, gateway: Gateway, redis_url: str, tables: Tables
) -> None:
    """The other worker is on standby and takes over at once when the first one stops gracefully."""
    team = await make_direct(container)
    async with other_process(redis_url, tables) as others:
        first_writes, second_writes = record_writes(container), record_writes(others)
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


async def transfer_lease(container: StorageContainer, new_owner: str) -> None:
    """Transfer the lease to another worker, as if it had expired while its holder was suspended."""
    lease = container.hot.keys.lease(0, "persist")
    # Use one transaction, so that the holder cannot claim it in between.
    await container.hot.transaction(
        ("HINCRBY", lease, "token", 1), ("HSET", lease, "owner", new_owner, "until_ms", 2**52)
    )


async def test_persist_worker_suspended_past_its_lease_does_not_write(
    container: StorageContainer, gateway: Gateway, redis_url: str, tables: Tables
) -> None:
    """It checks its lease before a write and becomes a standby worker."""
    clock = ShiftedClock()
    suspended = with_attributes(container, clock=clock)
    team = await make_direct(container)
    async with (
        other_process(redis_url, tables) as others,
        running(persister_of(suspended, "suspended").run()),
    ):
        await gateway.send(team, "first")
        await eventually(lambda: is_drained(container))
        writes = record_writes(container)
        await transfer_lease(container, "w2")
        async with running(persister_of(others, "w2").run()):
            await eventually(lambda: is_lease_holder(container, b"w2"))
            clock.monotonic_s += 60
            await gateway.send(team, *texts(30))
            await eventually(lambda: is_drained(container))

    assert writes.bodies("BatchWriteItem") == []
    assert len(await stored_of(container, team.chat)) == 31


async def test_persist_worker_unaware_of_its_lost_lease_cannot_move_the_checkpoint(
    container: StorageContainer, gateway: Gateway, redis_url: str, tables: Tables
) -> None:
    """It writes the same data as the new holder. Redis rejects its token for the checkpoint."""
    team = await make_direct(container)
    async with (
        other_process(redis_url, tables) as others,
        running(persister_of(container, "suspended").run()) as suspended,
    ):
        await gateway.send(team, "first")
        await eventually(lambda: is_drained(container))
        await transfer_lease(container, "w2")
        async with running(persister_of(others, "w2").run()):
            await eventually(lambda: is_lease_holder(container, b"w2"))
            await gateway.send(team, *texts(30))
            await eventually(lambda: is_drained(container))

            checkpoint = await container.hot.call("HGET", container.hot.keys.checkpoint(0), "token")
            token = await container.hot.call(
                "HGET", container.hot.keys.lease(0, "persist"), "token"
            )
            assert checkpoint == token
            assert not suspended.done()

    assert [m.seq for m in await stored_of(container, team.chat)] == list(range(1, 32))


async def test_persist_lease_lost_during_a_write_does_not_end_the_worker(
    container: StorageContainer, gateway: Gateway
) -> None:
    """A worker that lost its lease becomes a standby worker, and claims it when it is free."""
    clock = ShiftedClock()
    suspended = with_attributes(container, clock=clock)
    team = await make_direct(container)
    faults = record_writes(container)

    def suspend(_: object) -> Exception:
        clock.monotonic_s += 60
        return ConnectionResetError("suspended")

    async with running(persister_of(suspended).run()) as task:
        await gateway.send(team, "first")
        await eventually(lambda: is_drained(container))
        lease = container.hot.keys.lease(0, "persist")
        faults.add("BatchWriteItem", *[suspend] * 5)
        await gateway.send(team, *texts(5))
        await container.hot.call("HSET", lease, "owner", "other", "until_ms", 2**52)
        await asyncio.sleep(0)
        await container.hot.call("HSET", lease, "until_ms", 0)

        await eventually(lambda: is_drained(container))

        assert not task.done()
    assert len(await stored_of(container, team.chat)) == 6


async def test_persist_worker_releases_its_lease_when_it_is_stopped(
    container: StorageContainer,
) -> None:
    """No process has to wait for the lease of a worker that stopped gracefully."""
    task = asyncio.create_task(persister_of(container).run())
    await eventually(lambda: is_lease_holder(container, b"w1"))

    await end(task)

    assert await is_lease_holder(container, b"")
