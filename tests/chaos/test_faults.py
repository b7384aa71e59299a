"""Paused, restarted and unavailable processes, and broken links."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable

import pytest
import redis.asyncio

from chatserver.dev.servers import Server
from tests.chaos.world import DEADLINE_S, SECONDS, World
from tests.support.history.events import Responded
from tests.support.servers.processes import eventually
from tests.support.servers.tcp_proxy import TcpProxy
from tests.support.stack import Stack, start_async

LEASE_S = 2.0  # as set in conftest.py


async def test_persist_worker_paused_beyond_its_lease_writes_nothing_late(
    world: World, stack: Stack
) -> None:
    """A paused worker that resumes after another worker took over writes nothing."""
    paused = stack.workers["persist"]
    async with world:
        await world.wait_for_acks()
        paused.send_signal(signal.SIGSTOP)
        await stack.start_worker_async("persist")
        await world.chat_for(LEASE_S * 1.5)
        paused.send_signal(signal.SIGCONT)
        await world.wait_for_acks()
        paused.stop()
        await world.finish_and_check()


async def test_gateway_paused_and_resumed_repeats_nothing(world: World, stack: Stack) -> None:
    """A gateway that is paused and resumed delivers nothing twice."""
    async with world:
        paused = world.random.choice(stack.gateways)
        await world.wait_for_acks()
        paused.send_signal(signal.SIGSTOP)
        await world.chat_for(SECONDS)
        paused.send_signal(signal.SIGCONT)
        await world.wait_for_acks()
        await world.finish_and_check()


@pytest.fixture
async def long_timeout_gateway(stack: Stack) -> AsyncIterator[Server]:
    """A gateway with a long Redis timeout, so that a slow machine causes no refusals."""
    gateway = stack.add_gateway(CHAT_REDIS_CALL_TIMEOUT_S="30")
    await start_async(gateway)
    yield gateway
    gateway.kill()
    stack.gateways.remove(gateway)


async def test_redis_script_flush_is_invisible_to_clients(
    world: World, stack: Stack, long_timeout_gateway: Server
) -> None:
    """Users notice no SCRIPT FLUSH."""
    client = redis.asyncio.Redis.from_url(stack.redis_url, socket_timeout=60)
    world.ports = lambda: [long_timeout_gateway.port]
    async with world:
        for _ in range(5):
            await world.wait_for_acks(10)
            await client.script_flush()
        await world.finish_and_check()
    await client.aclose()

    assert world.history.refusals() == []


async def test_redis_stall_refuses_temporarily_and_loses_nothing(
    world: World, stack: Stack
) -> None:
    """If Redis stalls longer than the call timeout, each send gets an outcome later."""
    async with world:
        await world.wait_for_acks()
        stack.redis.send_signal(signal.SIGSTOP)
        await world.chat_for(2.5)
        stack.redis.send_signal(signal.SIGCONT)
        await world.wait_for_acks()
        await world.finish_and_check()


async def test_dynamodb_killed_and_restarted_only_delays_persistence(
    world: World, stack: Stack
) -> None:
    """While DynamoDB is down, users keep chatting; the messages are persisted afterwards."""
    async with world:
        await world.wait_for_acks()
        stack.dynamodb.kill()
        await world.wait_for_acks(50)
        await start_async(stack.dynamodb)
        await world.wait_for_acks()
        await world.finish_and_check()


# ── the link between a gateway and Redis ────────────────────────────────────────────────────────


@pytest.fixture
async def link(stack: Stack) -> AsyncIterator[TcpProxy]:
    """A link to Redis that a test can break."""
    async with TcpProxy(stack.redis.port) as proxy:
        yield proxy


@pytest.fixture
async def linked(stack: Stack, link: TcpProxy) -> AsyncIterator[Server]:
    """A gateway behind this link, with a long pong timeout."""
    gateway = stack.add_gateway(
        CHAT_REDIS_URL=f"redis://127.0.0.1:{link.port}/0",
        CHAT_GATEWAY_PING_INTERVAL_S="60",
        CHAT_GATEWAY_PONG_TIMEOUT_S="50",
    )
    await start_async(gateway)
    yield gateway
    gateway.kill()
    stack.gateways.remove(gateway)


def reset(link: TcpProxy) -> None:
    """Reset every connection."""
    link.reset()


def cut_reply(link: TcpProxy) -> None:
    """Cut a reply in the middle."""
    link.tear(after_bytes=1000)


def add_latency(link: TcpProxy) -> None:
    """Add 100 ms of latency in each direction."""
    link.latency_s = 0.1


FAULTS: dict[str, Callable[[TcpProxy], None]] = {
    "reset": reset,
    "cut reply": cut_reply,
    "latency": add_latency,
    "answers lost": lambda link: link.blackhole("down"),
    "calls lost": lambda link: link.blackhole("up"),
    "cut off": lambda link: link.blackhole("up", "down"),
    "refused": lambda link: link.refuse(),
}


async def test_broken_links_to_redis_lose_and_repeat_nothing(
    world: World, stack: Stack, link: TcpProxy, linked: Server
) -> None:
    """Link faults occur in random order, and each send gets an outcome later."""
    direct = stack.gateways[0]
    world.ports = lambda: [linked.port, linked.port, direct.port]
    names = sorted(FAULTS)
    world.random.shuffle(names)
    async with world:
        for name in names:
            await world.wait_for_acks(10)
            FAULTS[name](link)
            await world.chat_for(SECONDS / 3)
            link.end_faults()
        await world.finish_and_check()

    assert link.connections_made > len(FAULTS) / 2


async def test_gateway_without_redis_answers_unavailable_and_keeps_its_sockets(
    world: World, stack: Stack, link: TcpProxy, linked: Server
) -> None:
    """Sends are refused within the deadline; the sockets stay open and work afterwards."""
    world.ports = lambda: [linked.port]
    async with world:
        await world.wait_for_acks()
        sockets = [person.chat.ended for person in world.people]
        link.blackhole()
        start = world.recorder.now()
        await eventually(lambda: refusals_after(world, start), DEADLINE_S)
        link.end_faults()
        await world.wait_for_acks()
        assert not any(ended.is_set() for ended in sockets)
        await world.finish_and_check()

    assert {refusal.code for refusal in refusals_after(world, start)} <= {
        "unavailable", "overloaded",
    }  # fmt: skip


def refusals_after(world: World, start: float) -> list[Responded]:
    """Return the sends that were refused since a time of the run."""
    return [refusal for refusal in world.history.refusals() if refusal.t > start]


# ── combined faults ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stack", [1, 4], indirect=True)
async def test_random_faults_one_after_another_lose_and_repeat_nothing(
    world: World, stack: Stack
) -> None:
    """Random kills, pauses and restarts; a quarter of the time is calm."""

    async def kill_and_restart(server: Server) -> None:
        server.kill()
        await world.chat_for(world.random.uniform(0.1, 1.0))
        await start_async(server)

    async def pause(server: Server) -> None:
        server.send_signal(signal.SIGSTOP)
        await world.chat_for(world.random.uniform(0.1, 2.5))
        server.send_signal(signal.SIGCONT)

    async def calm(_: Server) -> None:
        await world.chat_for(0.5)

    victims = [*stack.gateways, *stack.workers.values(), stack.redis, stack.dynamodb]
    rounds = max(3, int(SECONDS))
    async with world:
        for _ in range(rounds):
            action = world.random.choice([kill_and_restart, kill_and_restart, pause, calm])
            await action(world.random.choice(victims))
            await asyncio.sleep(0)
        await world.wait_for_acks()
        await world.finish_and_check()
