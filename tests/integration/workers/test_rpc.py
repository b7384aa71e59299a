"""The rpc worker: every call of a gateway to the warm tier, answered once or clearly not."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, GatewayId, Ref, UserId
from chatserver.errors import NotFound, Overloaded, RateLimited, Unavailable
from chatserver.hot.bus import rpc, rpc_client
from chatserver.hot.bus.rpc_client import WarmCalls
from chatserver.protocol import frames
from tests.integration.warm.support import Faults, Tables
from tests.integration.workers.support import (
    ALICE,
    BOB,
    CAROL,
    Gateway,
    end,
    is_drained,
    make_direct,
    make_users,
    open_container,
    persister_of,
    running,
    texts,
    variables_of,
    with_attributes,
)
from tests.support.servers.dynamodb_proxy import DynamoProxy
from tests.support.servers.processes import eventually
from workers import rpc as rpc_worker
from workers.rpc import (
    BULK_IN_FLIGHT_MAX,
    BULK_WAITING_MAX,
    CALLS_OF_USER_MAX,
    FEW_USERS,
    RpcWorker,
)

pytest_plugins = ["tests.integration.warm.fixtures", "tests.integration.workers.fixtures"]


@pytest.fixture
async def calls(gateway: Gateway) -> WarmCalls:
    """The calls of a gateway that listens to its mail."""
    return gateway.calls


@pytest.fixture
async def worker(container: StorageContainer) -> AsyncIterator[None]:
    """One worker."""
    async with running(RpcWorker(container, "w1").run()):
        yield


# ── every call ──────────────────────────────────────────────────────────────────────────────────


async def test_rpc_load_user_makes_the_user_known(
    container: StorageContainer, calls: WarmCalls, worker: None
) -> None:
    """After `hello` a user has an account and a user state."""
    await calls.load_user(ALICE)
    await calls.load_user(ALICE)

    assert (await container.directory.get_user(ALICE)).user == ALICE
    (state,) = await Gateway(container.hot).announce(ALICE)
    assert state.is_known


async def test_rpc_open_direct_is_the_same_chat_for_both(
    container: StorageContainer, calls: WarmCalls, worker: None
) -> None:
    """Opened twice, from either side, at once: one chat."""
    await make_users(container, ALICE, BOB)

    one, other = await asyncio.gather(calls.open_direct(ALICE, BOB), calls.open_direct(BOB, ALICE))

    assert one.chat == other.chat
    assert sorted(one.members or ()) == [ALICE, BOB]


async def test_rpc_create_chat_again_by_the_same_ref_is_the_same_chat(
    container: StorageContainer, calls: WarmCalls, worker: None
) -> None:
    """A call that died with its worker may be repeated."""
    await make_users(container, ALICE, BOB, CAROL)

    first = await calls.create_chat(ALICE, Ref("g"), [BOB, CAROL], "Team")
    again = await calls.create_chat(ALICE, Ref("g"), [BOB, CAROL], "Team")

    assert first.chat == again.chat
    assert first.name == "Team"


async def test_rpc_load_chat_opens_it_in_the_hot_tier(
    container: StorageContainer, calls: WarmCalls, worker: None
) -> None:
    """A chat that left Redis is there again."""
    team = await make_direct(container)
    await container.hot.call("UNLINK", container.hot.keys.chat(team.chat))

    await calls.load_chat(team.chat)

    assert await container.hot.call("EXISTS", container.hot.keys.chat(team.chat))


async def test_rpc_read_run_reads_both_ways(
    container: StorageContainer, gateway: Gateway, calls: WarmCalls, worker: None
) -> None:
    """Below a seq and above one, contiguous and rising."""
    team = await make_direct(container)
    await gateway.send(team, *texts(10))
    async with running(persister_of(container).run()):
        await eventually(lambda: is_drained(container))

    before = (await calls.read_run(team.chat, 8, None, 3, None)).messages
    after = (await calls.read_run(team.chat, None, 8, 50, None)).messages

    assert [message.seq for message in before] == [5, 6, 7]
    assert [message.seq for message in after] == [9, 10]
    assert before[0].body == "text 5"


# ── errors ──────────────────────────────────────────────────────────────────────────────────────


async def test_rpc_error_of_the_warm_tier_reaches_the_caller_as_it_is(
    container: StorageContainer, calls: WarmCalls, worker: None
) -> None:
    """Kind and words: who is missing, and that it is not temporary."""
    await make_users(container, ALICE)

    with pytest.raises(NotFound, match="nobody-1"):
        await calls.open_direct(ALICE, UserId("nobody-1"))
    with pytest.raises(NotFound):
        await calls.load_chat(ChatId("no-such-chat"))


async def test_rpc_warm_tier_that_is_away_is_unavailable_and_the_next_call_works(
    container: StorageContainer, calls: WarmCalls, worker: None
) -> None:
    """A failure of one call is that call's."""
    team = await make_direct(container)
    faults = Faults(container.messages._client)
    for operation in ("GetItem", "Query", "BatchGetItem"):
        faults.add(operation, *[lambda _: ConnectionResetError("away")] * 50)

    with pytest.raises(Unavailable):
        await calls.load_chat(team.chat)

    faults._faults.clear()
    await calls.load_chat(team.chat)


async def test_rpc_call_of_another_version_is_refused_and_holds_up_no_other(
    container: StorageContainer, gateway: Gateway, calls: WarmCalls, worker: None
) -> None:
    """During a rolling update a gateway may know more than a worker."""

    class Unheard(rpc.Operation, tag="unheard_of"):
        """An operation of the future."""

    key = container.hot.keys.rpc_calls()
    await container.hot.call("XADD", key, "*", "c", b"\xc1 not msgpack")
    await container.hot.call("XADD", key, "*", "other", b"field")

    with pytest.raises(Unavailable, match="does not know this call"):
        await calls._call(Unheard())  # type: ignore[arg-type]  # that it is none is the point
    await calls.load_user(ALICE)


# ── deadlines ───────────────────────────────────────────────────────────────────────────────────


async def test_rpc_call_older_than_its_deadline_is_not_executed(
    container: StorageContainer, gateway: Gateway
) -> None:
    """The caller has given up: a late worker does no useless work."""
    await make_users(container, ALICE)
    hasty = WarmCalls(container.hot, GatewayId("gw1"), 0.05)
    with pytest.raises(Unavailable, match="check that `chatserver worker rpc` is running"):
        await hasty.load_user(UserId("late"))

    async with running(RpcWorker(container, "w1").run()):
        await gateway.calls.load_user(ALICE)

    with pytest.raises(NotFound):
        await container.directory.get_user("late")


class ShiftedClock(SystemClock):
    """The clock of a machine that is not set right."""

    def __init__(self, off_s: float) -> None:
        self._off_s = off_s

    def time(self) -> float:
        return super().time() + self._off_s


@pytest.mark.parametrize("off_s", [-60.0, -4.0, 4.0, 60.0])
async def test_rpc_call_is_answered_when_clocks_of_gateway_and_worker_differ(
    container: StorageContainer, gateway: Gateway, off_s: float
) -> None:
    """The age of a call is counted on the clock of Redis alone (F47)."""
    await make_users(container, ALICE)
    apart = with_attributes(container, clock=ShiftedClock(off_s))

    async with running(RpcWorker(apart, "w1").run()):
        await asyncio.wait_for(gateway.calls.load_user(ALICE), 15)


class SlowLoader:
    """A warm tier that takes its time; counts."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()
        self.at_once = self.most_at_once = self.done = 0
        self.begun: list[UserId] = []

    async def load_user(self, user: UserId) -> None:
        self.begun.append(user)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.may_go_on.wait()
            self.done += 1
        finally:
            self.at_once -= 1

    async def create_chat(self, user: UserId, *_: object, is_host: bool = False) -> frames.ChatInfo:
        await self.load_user(user)
        return frames.ChatInfo("c", "group", [user])


def slowed(container: StorageContainer, loader: SlowLoader, in_flight_max: int = 64) -> RpcWorker:
    """A worker whose warm tier is slow."""
    slow = with_attributes(container, user_loader=cast(Any, loader), chat_creator=cast(Any, loader))
    return RpcWorker(slow, "slow", in_flight_max=in_flight_max)


async def test_rpc_call_that_takes_too_long_is_given_up_on_both_sides(
    container: StorageContainer, gateway: Gateway
) -> None:
    """The caller gets an error in time, and the worker is free again."""
    loader = SlowLoader()
    hasty = WarmCalls(container.hot, GatewayId("gw1"), 0.3)
    async with running(slowed(container, loader).run()):
        while not loader.most_at_once:  # one that the worker sees too late is not begun
            with pytest.raises(Unavailable):
                await hasty.load_user(ALICE)

        await eventually(lambda: loader.at_once == 0)

    assert loader.most_at_once == 1 and loader.done == 0


# ── bounds ──────────────────────────────────────────────────────────────────────────────────────


async def test_rpc_calls_beyond_the_bound_are_overloaded_and_the_others_answered(
    container: StorageContainer, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An overloaded gateway refuses at once; waiting calls are not lost."""
    monkeypatch.setattr(rpc_client, "WAITING_MAX", 5)
    loader = SlowLoader()
    async with running(slowed(container, loader).run()):
        waiting = [asyncio.create_task(gateway.calls.load_user(ALICE)) for _ in range(5)]
        await eventually(lambda: loader.at_once == 5)

        with pytest.raises(Overloaded) as caught:
            await gateway.calls.load_user(ALICE)
        loader.may_go_on.set()
        await asyncio.gather(*waiting)
        await gateway.calls.load_user(ALICE)

    assert caught.value.retry_after_ms
    assert loader.done == 6


async def test_rpc_call_behind_a_flood_of_another_user_is_answered_first(
    container: StorageContainer, gateway: Gateway
) -> None:
    """Slots are shared by user: a user with a hundred calls waits for their own."""
    loader = SlowLoader()
    async with running(slowed(container, loader).run()):
        flood = [asyncio.create_task(gateway.calls.load_user(ALICE)) for _ in range(100)]
        await eventually(lambda: loader.at_once >= CALLS_OF_USER_MAX)

        other = asyncio.create_task(gateway.calls.load_user(BOB))
        await eventually(lambda: BOB in loader.begun)
        assert loader.begun.count(ALICE) == CALLS_OF_USER_MAX

        loader.may_go_on.set()
        await asyncio.gather(other, *flood)


async def test_rpc_calls_about_many_users_leave_the_slots_to_the_others(
    container: StorageContainer, gateway: Gateway
) -> None:
    """Large groups are created one at a time, whoever creates them; other calls start at once."""
    loader = SlowLoader()
    fit = BULK_IN_FLIGHT_MAX + BULK_WAITING_MAX
    members = [UserId(f"u{n}") for n in range(FEW_USERS + 1)]
    async with running(slowed(container, loader).run()):
        flood = [
            asyncio.create_task(gateway.calls.create_chat(creator, Ref("g"), members, None))
            for creator in members
        ]
        await eventually(lambda: loader.at_once == BULK_IN_FLIGHT_MAX)

        other = asyncio.create_task(gateway.calls.load_user(BOB))
        await eventually(lambda: BOB in loader.begun)
        assert loader.most_at_once == BULK_IN_FLIGHT_MAX + 1

        await eventually(lambda: sum(each.done() for each in flood) == len(flood) - fit)
        loader.may_go_on.set()
        await other
        outcomes = await asyncio.gather(*flood, return_exceptions=True)

    refused = [each for each in outcomes if isinstance(each, BaseException)]
    assert all(isinstance(each, RateLimited) for each in refused)
    assert len(refused) == len(flood) - fit


async def test_rpc_calls_of_one_user_beyond_the_bound_are_rate_limited(
    container: StorageContainer, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's queued calls at a worker are bounded, and the refusal carries a retry time."""
    monkeypatch.setattr(rpc_worker, "WAITING_OF_USER_MAX", 3)
    loader = SlowLoader()
    async with running(slowed(container, loader).run()):
        fit = CALLS_OF_USER_MAX + 3
        waiting = [asyncio.create_task(gateway.calls.load_user(ALICE)) for _ in range(fit + 2)]
        refused = [
            task
            for task in (await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED))[0]
            if isinstance(task.exception(), RateLimited)
        ]
        assert refused
        loader.may_go_on.set()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)

    failures = [outcome for outcome in outcomes if isinstance(outcome, RateLimited)]
    assert len(failures) == 2
    assert all(failure.retry_after_ms for failure in failures)


async def test_rpc_create_chat_with_many_members_reads_them_together(
    container: StorageContainer, gateway: Gateway, dynamodb: str
) -> None:
    """Members are read 100 at a time; only how many groups each has is one count per member."""
    members = [UserId(f"u{n}") for n in range(255)]
    await make_users(container, ALICE, *members)
    async with DynamoProxy(dynamodb) as proxy:
        warm = container.settings.warm.model_copy(update={"endpoint": proxy.endpoint})
        async with open_container(container.settings.redis.url, warm) as others:
            before = len(proxy.calls)
            await others.chat_creator.create_chat(ALICE, Ref("g"), members, "Team")
            made = [call.operation for call, _ in proxy.calls[before:]]

    others_made = [operation for operation in made if operation != "Query"]
    assert len(others_made) < 25, made
    assert made.count("Query") <= len(members) + 5


async def test_rpc_worker_does_so_many_calls_at_once_and_no_more(
    container: StorageContainer, gateway: Gateway
) -> None:
    """The others wait, and all are answered."""
    loader = SlowLoader()
    async with running(slowed(container, loader, 3).run()):
        waiting = [asyncio.create_task(gateway.calls.load_user(ALICE)) for _ in range(20)]
        await eventually(lambda: loader.at_once == 3)
        loader.may_go_on.set()
        await asyncio.gather(*waiting)

    assert (loader.most_at_once, loader.done) == (3, 20)


# ── several workers, and their end ──────────────────────────────────────────────────────────────


async def test_rpc_two_workers_share_the_calls(
    container: StorageContainer, gateway: Gateway, redis_url: str, tables: Tables
) -> None:
    """Each call is made once, by either of them."""
    users = [UserId(f"user-{n}") for n in range(20)]
    async with open_container(redis_url, tables.settings) as others:
        sides = [Faults(made.messages._client) for made in (container, others)]
        async with (
            running(RpcWorker(container, "w1").run()),
            running(RpcWorker(others, "w2").run()),
        ):
            await eventually(lambda: are_waiting(container, 3))  # both, and the gateway
            for user in users:
                await gateway.calls.load_user(user)

    made = [len(side.bodies("PutItem")) for side in sides]
    assert all(count > 0 for count in made), made
    assert sum(made) == len(users)


async def are_waiting(container: StorageContainer, count: int) -> bool:
    """Whether so many readers wait for something to come."""
    found: bytes = await container.hot.call("INFO", "clients")
    return b"blocked_clients:%d\r" % count in found


async def test_rpc_worker_that_is_stopped_answers_what_it_took(
    container: StorageContainer, gateway: Gateway
) -> None:
    """Started calls are finished; the others go to another worker, or fail."""
    loader = SlowLoader()
    task = asyncio.create_task(slowed(container, loader, 1).run())
    waiting = [asyncio.create_task(gateway.calls.load_user(ALICE)) for _ in range(6)]
    await eventually(lambda: loader.at_once == 1)

    task.cancel()
    outcomes = asyncio.gather(*waiting[1:], return_exceptions=True)
    refused = await asyncio.wait_for(outcomes, 15)
    loader.may_go_on.set()
    await waiting[0]
    await end(task)

    assert all("stopping; try again" in str(error) for error in refused), refused
    assert loader.done == 1


async def test_rpc_worker_killed_in_a_call_leaves_it_unavailable_and_the_retry_works(
    container: StorageContainer, gateway: Gateway
) -> None:
    """Everything was done but the response: the outcome is unknown, and the caller retries."""
    await make_users(container, ALICE, BOB)
    hasty = WarmCalls(container.hot, GatewayId("gw2"), 3.0)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "chatserver.cli.main", "worker", "rpc",
        env={**os.environ, **variables_of(container), "CHAT_FAILPOINT": "rpc.before_answer:kill"},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip

    async def is_killed() -> bool:
        # A call that the process is too slow for is not begun, or not brought to its end.
        with pytest.raises(Unavailable, match="did not respond within"):
            await hasty.create_chat(ALICE, Ref("g"), [BOB], "Team")
        return process.returncode is not None

    await eventually(is_killed, 60)
    assert process.returncode == -signal.SIGKILL

    async with running(RpcWorker(container, "w2").run()):
        info = await gateway.calls.create_chat(ALICE, Ref("g"), [BOB], "Team")
        found = await container.directory.list_memberships(ALICE, limit=10)
    assert [row.chat.chat for row in found.items] == [info.chat]
