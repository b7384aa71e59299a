"""Limits of the rpc worker: which calls wait, and for whom."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.access.caller import CALLER, RequestCaller
from chatserver.domain.ids import Ref, UserId
from chatserver.errors import Overloaded, RateLimited
from chatserver.hot.bus import rpc_client
from chatserver.protocol import frames
from chatserver.protocol.request_costs import BULK_USERS_MIN
from chatserver.requests.registry import make_call
from tests.integration.workers.slow_rpc import SlowLoader, make_slow_worker
from tests.integration.workers.support import (
    ALICE,
    BOB,
    Gateway,
    make_users,
    open_container,
    running,
)
from tests.support.servers.dynamodb_proxy import DynamoProxy
from tests.support.servers.processes import eventually
from workers import rpc as rpc_worker
from workers.rpc import (
    BULK_IN_FLIGHT_MAX,
    BULK_WAITING_MAX,
    CALLS_OF_KEY_MAX,
    CALLS_OF_NEW_ACCOUNTS_MAX,
    IDLE_CALLS_MAX,
)


async def test_rpc_calls_above_the_limit_are_refused_as_overloaded(
    container: StorageContainer, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway refuses them at once. Waiting calls get responses."""
    monkeypatch.setattr(rpc_client, "WAITING_MAX", 5)
    loader = SlowLoader()
    async with running(make_slow_worker(container, loader).run()):
        waiting = [asyncio.create_task(gateway.calls.load_user(ALICE)) for _ in range(5)]
        await eventually(lambda: loader.in_flight == CALLS_OF_KEY_MAX)

        with pytest.raises(Overloaded) as caught:
            await gateway.calls.load_user(ALICE)
        loader.resume.set()
        await asyncio.gather(*waiting)
        await gateway.calls.load_user(ALICE)

    assert caught.value.retry_after_ms
    assert loader.done == 6


async def test_rpc_call_of_another_user_is_started_before_queued_calls_of_one_user(
    container: StorageContainer, gateway: Gateway
) -> None:
    """One user may use only some of the slots."""
    loader = SlowLoader()
    async with running(make_slow_worker(container, loader).run()):
        flood = [asyncio.create_task(gateway.calls.load_user(ALICE)) for _ in range(100)]
        await eventually(lambda: loader.in_flight >= CALLS_OF_KEY_MAX)

        other = asyncio.create_task(gateway.calls.load_user(BOB))
        await eventually(lambda: BOB in loader.started)
        assert loader.started.count(ALICE) == CALLS_OF_KEY_MAX

        loader.resume.set()
        await asyncio.gather(other, *flood)


async def test_rpc_calls_of_new_accounts_do_not_delay_those_of_other_users(
    container: StorageContainer, gateway: Gateway
) -> None:
    """While the worker is busy, those of a network run one at a time, and of all only a few."""
    loader = SlowLoader()
    started = IDLE_CALLS_MAX + 1 + CALLS_OF_NEW_ACCOUNTS_MAX
    async with running(make_slow_worker(container, loader).run()):
        flood = []
        for number in range(100):
            context = contextvars.copy_context()
            user = UserId(f"new-{number}")
            context.run(CALLER.set, RequestCaller(user, (f"4-0a010{number % 4}",)))
            call = gateway.calls.load_user(user)
            flood.append(asyncio.create_task(call, context=context))
        await eventually(lambda: loader.in_flight == started)

        other = asyncio.create_task(gateway.calls.load_user(BOB))
        await eventually(lambda: BOB in loader.started)
        assert loader.most_in_flight == started + 1

        loader.resume.set()
        await asyncio.gather(other, *flood)


@pytest.mark.parametrize("taken_max", [2000, 1])
async def test_block_does_not_wait_while_all_slots_are_taken(
    container: StorageContainer,
    gateway: Gateway,
    monkeypatch: pytest.MonkeyPatch,
    taken_max: int,
) -> None:
    """Calls that protect a user have their own slots, also while no other call is taken."""
    monkeypatch.setattr(rpc_worker, "TAKEN_MAX", taken_max)
    await make_users(container, ALICE, BOB)
    loader = SlowLoader()
    async with running(make_slow_worker(container, loader, in_flight_max=1).run()):
        flood = [asyncio.create_task(gateway.calls.load_user(ALICE)) for _ in range(20)]
        await eventually(lambda: loader.in_flight == 1)

        await gateway.calls.forward_frame(make_call(BOB, frames.Block(1, ALICE)), is_needed=False)

        assert loader.done == 0
        loader.resume.set()
        await asyncio.gather(*flood, return_exceptions=True)


async def test_rpc_calls_with_many_users_do_not_block_other_calls(
    container: StorageContainer, gateway: Gateway
) -> None:
    """Only a few large groups are created at a time. Other calls start at once."""
    loader = SlowLoader()
    accepted = BULK_IN_FLIGHT_MAX + BULK_WAITING_MAX
    members = [UserId(f"u{n}") for n in range(BULK_USERS_MIN)]
    async with running(make_slow_worker(container, loader).run()):
        flood = [
            asyncio.create_task(gateway.calls.create_chat(creator, Ref("g"), members, None))
            for creator in members
        ]
        await eventually(lambda: loader.in_flight == BULK_IN_FLIGHT_MAX)

        other = asyncio.create_task(gateway.calls.load_user(BOB))
        await eventually(lambda: BOB in loader.started)
        assert loader.most_in_flight == BULK_IN_FLIGHT_MAX + 1

        await eventually(lambda: sum(each.done() for each in flood) == len(flood) - accepted)
        loader.resume.set()
        await other
        outcomes = await asyncio.gather(*flood, return_exceptions=True)

    refused = [each for each in outcomes if isinstance(each, BaseException)]
    assert all(isinstance(each, RateLimited) for each in refused)
    assert len(refused) == len(flood) - accepted


async def test_rpc_calls_of_one_user_above_the_limit_are_rate_limited(
    container: StorageContainer, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of a user's queued calls is limited, and the error has a retry time."""
    monkeypatch.setattr(rpc_worker, "WAITING_OF_KEY_MAX", 3)
    loader = SlowLoader()
    async with running(make_slow_worker(container, loader).run()):
        accepted = CALLS_OF_KEY_MAX + 3
        waiting = [asyncio.create_task(gateway.calls.load_user(ALICE)) for _ in range(accepted + 2)]
        refused = [
            task
            for task in (await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED))[0]
            if isinstance(task.exception(), RateLimited)
        ]
        assert refused
        loader.resume.set()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)

    failures = [outcome for outcome in outcomes if isinstance(outcome, RateLimited)]
    assert len(failures) == 2
    assert all(failure.retry_after_ms for failure in failures)


async def test_rpc_create_chat_reads_many_members_in_batches(
    container: StorageContainer, gateway: Gateway, dynamodb: str
) -> None:
    """Members are read 100 at a time. Only the count of groups is one query per member."""
    members = [UserId(f"u{n}") for n in range(255)]
    await make_users(container, ALICE, *members)
    async with DynamoProxy(dynamodb) as proxy:
        warm = container.settings.warm.model_copy(update={"endpoint": proxy.endpoint})
        async with open_container(container.settings.redis.url, warm) as others:
            before = len(proxy.calls)
            await others.chat_creator.create_chat(ALICE, Ref("g"), members, "Team")
            operations = [call.operation for call, _ in proxy.calls[before:]]

    other_operations = [operation for operation in operations if operation != "Query"]
    assert len(other_operations) < 25, operations
    assert operations.count("Query") <= len(members) + 5


async def test_rpc_worker_limits_concurrent_calls(
    container: StorageContainer, gateway: Gateway
) -> None:
    """Other calls wait, and all get responses."""
    loader = SlowLoader()
    async with running(make_slow_worker(container, loader, 3).run()):
        waiting = [asyncio.create_task(gateway.calls.load_user(ALICE)) for _ in range(20)]
        await eventually(lambda: loader.in_flight == 3)
        loader.resume.set()
        await asyncio.gather(*waiting)

    assert (loader.most_in_flight, loader.done) == (3, 20)
