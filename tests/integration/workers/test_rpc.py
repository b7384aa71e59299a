"""The rpc worker: calls of gateways to the warm tier, their errors and deadlines."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import GatewayId, Ref, UserId
from chatserver.errors import NotFound, Unavailable
from chatserver.hot.bus import rpc
from chatserver.hot.bus.rpc_client import RpcClient
from tests.integration.warm.support import Faults
from tests.integration.workers.slow_rpc import SlowLoader, make_slow_worker
from tests.integration.workers.support import (
    ALICE,
    BOB,
    Gateway,
    end,
    make_direct,
    make_users,
    persist,
    running,
    texts,
    with_attributes,
    worker_process,
)
from tests.support.fake_clocks import ShiftedClock
from tests.support.servers.processes import eventually
from workers.rpc import (
    RpcWorker,
)


@pytest.fixture
async def calls(gateway: Gateway) -> RpcClient:
    """The RPC client of a gateway that reads its gateway stream."""
    return gateway.calls


@pytest.fixture
async def worker(container: StorageContainer) -> AsyncIterator[None]:
    """A running rpc worker."""
    async with running(RpcWorker(container, "w1").run()):
        yield


# ── operations ────────────────────────────────────────────────────────────────────────────────────


async def test_rpc_load_user_creates_account_and_user_state(
    container: StorageContainer, calls: RpcClient, worker: None
) -> None:
    """A gateway makes this call at `hello`. A second call changes nothing."""
    await calls.load_user(ALICE)
    await calls.load_user(ALICE)

    assert (await container.directory.get_user(ALICE)).user == ALICE
    (state,) = await Gateway(container.hot).announce(ALICE)
    assert state.is_known


async def test_rpc_load_chat_loads_it_into_redis(
    container: StorageContainer, calls: RpcClient, worker: None
) -> None:
    """The chat had been evicted from Redis."""
    team = await make_direct(container)
    await container.hot.call("UNLINK", container.hot.keys.chat(team.chat))

    await calls.load_chat(team.chat)

    assert await container.hot.call("EXISTS", container.hot.keys.chat(team.chat))


async def test_rpc_read_run_reads_in_both_directions(
    container: StorageContainer, gateway: Gateway, calls: RpcClient, worker: None
) -> None:
    """Runs below and above a seq are contiguous and ascending."""
    team = await make_direct(container)
    await gateway.send(team, *texts(10))
    await persist(container)

    before = (await calls.read_run(team.chat, 8, None, 3, None)).messages
    after = (await calls.read_run(team.chat, None, 8, 50, None)).messages

    assert [message.seq for message in before] == [5, 6, 7]
    assert [message.seq for message in after] == [9, 10]
    assert before[0].body == "text 5"


# ── errors ────────────────────────────────────────────────────────────────────────────────────────


async def test_rpc_call_during_a_dynamodb_outage_is_unavailable(
    container: StorageContainer, calls: RpcClient, worker: None
) -> None:
    """The next call after the outage succeeds."""
    team = await make_direct(container)
    faults = Faults(container.messages._client)
    for operation in ("GetItem", "Query", "BatchGetItem"):
        faults.add(operation, *[lambda _: ConnectionResetError("reset")] * 50)

    with pytest.raises(Unavailable):
        await calls.load_chat(team.chat)

    faults._faults.clear()
    await calls.load_chat(team.chat)


async def test_rpc_unknown_call_is_refused_and_blocks_no_other(
    container: StorageContainer, gateway: Gateway, calls: RpcClient, worker: None
) -> None:
    """During a rolling update, a gateway may send calls that a worker does not know."""

    class FutureOperation(rpc.RpcOperation, tag="future"):
        """An operation of a later release."""

    key = container.hot.keys.rpc_calls()
    await container.hot.call("XADD", key, "*", "c", b"\xc1 not msgpack")
    await container.hot.call("XADD", key, "*", "other", b"field")

    with pytest.raises(Unavailable, match="does not know this call"):
        await calls._call(FutureOperation())  # type: ignore[arg-type]  # an unknown operation
    await calls.load_user(ALICE)


# ── deadlines ─────────────────────────────────────────────────────────────────────────────────────


async def test_rpc_call_older_than_its_deadline_is_not_executed(
    container: StorageContainer, gateway: Gateway
) -> None:
    """The caller has already raised an error, so the worker skips the call."""
    await make_users(container, ALICE)
    short_calls = RpcClient(container.hot, GatewayId("gw1"), 0.05)
    with pytest.raises(Unavailable, match="check that `chatserver worker rpc` is running"):
        await short_calls.load_user(UserId("late"))

    async with running(RpcWorker(container, "w1").run()):
        await gateway.calls.load_user(ALICE)

    with pytest.raises(NotFound):
        await container.directory.get_user("late")


@pytest.mark.parametrize("offset_s", [-60.0, -4.0, 4.0, 60.0])
async def test_rpc_call_succeeds_if_clocks_of_gateway_and_worker_differ(
    container: StorageContainer, gateway: Gateway, offset_s: float
) -> None:
    """The age of a call is measured with the clock of Redis."""
    await make_users(container, ALICE)
    skewed = with_attributes(container, clock=ShiftedClock(wall_s=offset_s))

    async with running(RpcWorker(skewed, "w1").run()):
        await asyncio.wait_for(gateway.calls.load_user(ALICE), 15)


async def test_rpc_call_beyond_its_deadline_is_ended_on_both_sides(
    container: StorageContainer, gateway: Gateway
) -> None:
    """The caller gets an error in time, and the worker cancels the call."""
    loader = SlowLoader()
    short_calls = RpcClient(container.hot, GatewayId("gw1"), 0.3)
    async with running(make_slow_worker(container, loader).run()):
        while not loader.most_in_flight:  # a call that the worker reads too late is not started
            with pytest.raises(Unavailable):
                await short_calls.load_user(ALICE)

        await eventually(lambda: loader.in_flight == 0)

    assert loader.most_in_flight == 1 and loader.done == 0


# ── several workers, stop and crash ───────────────────────────────────────────────────────────────


async def test_stopped_rpc_worker_completes_started_calls(
    container: StorageContainer, gateway: Gateway
) -> None:
    """Calls that are queued at the worker get a temporary error."""
    loader = SlowLoader()
    task = asyncio.create_task(make_slow_worker(container, loader, 1).run())
    waiting = [asyncio.create_task(gateway.calls.load_user(ALICE)) for _ in range(6)]
    await eventually(lambda: loader.in_flight == 1)

    task.cancel()
    outcomes = asyncio.gather(*waiting[1:], return_exceptions=True)
    refused = await asyncio.wait_for(outcomes, 15)
    loader.resume.set()
    await waiting[0]
    await end(task)

    assert all("stopping; try again" in str(error) for error in refused), refused
    assert loader.done == 1


async def test_rpc_call_of_a_killed_worker_is_unavailable_and_can_be_retried(
    container: StorageContainer, gateway: Gateway
) -> None:
    """The worker is killed before the response, so the outcome is unknown."""
    await make_users(container, ALICE, BOB)
    short_calls = RpcClient(container.hot, GatewayId("gw2"), 3.0)
    failpoint = {"CHAT_FAILPOINT": "rpc.before_answer:kill"}

    async def is_killed() -> bool:
        # A slow process may not start or complete a call before its deadline.
        with pytest.raises(Unavailable, match="did not respond within"):
            await short_calls.create_chat(ALICE, Ref("g"), [BOB], "Team")
        return process.returncode is not None

    async with worker_process(container, "rpc", **failpoint) as process:
        await eventually(is_killed, 120)  # a slow machine starts a process late
        assert process.returncode == -signal.SIGKILL

    async with running(RpcWorker(container, "w2").run()):
        info = await gateway.calls.create_chat(ALICE, Ref("g"), [BOB], "Team")
        found = await container.directory.list_memberships(ALICE, limit=10)
    assert [row.chat.chat for row in found.items] == [info.chat]
