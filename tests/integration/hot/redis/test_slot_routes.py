"""Routing of one slot's calls: in order, at most once, and never in another epoch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import hiredis
import pytest

from chatserver.errors import Unavailable
from chatserver.hot.redis import slot_routes
from chatserver.hot.redis.pipelined_connection import PipelinedConnection
from chatserver.hot.redis.slot_routes import SlotRoute
from tests.support.servers.processes import eventually

TIMEOUT_S = 60.0  # timeout of calls, except in tests of timeouts
MOVED, ASK, TRYAGAIN = "-MOVED 7 h:2\r\n", "-ASK 7 h:2\r\n", "-TRYAGAIN keys are apart\r\n"


class Node:
    """A server that sends the given replies one after another, then OK."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.wire: PipelinedConnection | None = None
        self.replicas = 0
        self.answers: list[str] = []
        self.received: list[str] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Reply until the connection ends."""
        parser = hiredis.Reader()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                parser.feed(data)
                while (command := parser.gets()) is not False:
                    await self.may_answer.wait()
                    self.received.append(b" ".join(command).decode())
                    writer.write((self.answers.pop(0) if self.answers else "+OK\r\n").encode())
        writer.close()
        self.ended.set()


@contextlib.asynccontextmanager
async def open_node(name: str) -> AsyncIterator[Node]:
    """Start a node and connect to it."""
    node = Node(name)
    async with await asyncio.start_server(node.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_connection(
            lambda: PipelinedConnection(name, TIMEOUT_S), "127.0.0.1", port
        )
        node.wire = wire
        yield node
        node.may_answer.set()
        wire.abort("the test is over")
        await node.ended.wait()


class Cluster:
    """Counts refreshes of the slot map; the test sets the new routes itself."""

    def __init__(self) -> None:
        self.refreshes = 0
        self.wires: dict[str, PipelinedConnection | None] = {}

    def refresh_soon(self) -> None:
        """Count the call."""
        self.refreshes += 1

    def find_wire(self, address: str) -> PipelinedConnection | None:
        """Return the connection that the test set for an address."""
        return self.wires.get(address)


def make_route(cluster: Cluster, timeout_s: float) -> SlotRoute:
    """Return the route of a slot that has no partitions."""
    return SlotRoute(
        slot=7,
        partitions=(),
        refresh_map=cluster.refresh_soon,
        find_wire=cluster.find_wire,
        timeout_s=timeout_s,
    )


class World:
    """A route between two nodes, and the replies to its calls."""

    def __init__(self, old: Node, new: Node, timeout_s: float) -> None:
        self.old, self.new, self.cluster = old, new, Cluster()
        self.route = make_route(self.cluster, timeout_s)
        self.route.set_node(cast(Any, old))
        self.replies: dict[str, Any] = {}
        self.order: list[str] = []

    def send(self, *names: str) -> None:
        """Make a call for each name."""
        for name in names:
            self._send(name)

    def _send(self, name: str) -> None:
        def on_reply(reply: Any) -> None:
            assert name not in self.replies, f"{name} got two replies"
            self.replies[name] = reply
            self.order.append(name)

        self.route.send(on_reply, ((name,),))

    def failed(self) -> list[str]:
        """Return the calls that failed as unavailable."""
        return [name for name, reply in self.replies.items() if isinstance(reply, Unavailable)]

    async def wait_for_replies(self, count: int) -> None:
        """Wait for `count` replies."""
        await eventually(lambda: len(self.replies) == count)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Two nodes; the first one has the slot."""
    async with open_node("old") as old, open_node("new") as new:
        made = World(old, new, TIMEOUT_S)
        yield made
        made.route.close()


async def test_calls_without_a_move_keep_their_order(world: World) -> None:
    """They are sent to the node of the slot."""
    names = [f"c{n}" for n in range(50)]
    world.send(*names)
    await world.wait_for_replies(50)

    assert world.order == world.old.received == names


async def test_calls_refused_by_a_move_run_on_the_new_node_before_later_ones(world: World) -> None:
    """MOVED means that they did not run. Calls made during the move wait after them."""
    world.old.answers = [MOVED] * 3
    world.send("a", "b", "c")
    await eventually(lambda: world.cluster.refreshes > 0)
    world.send("d", "e")

    world.route.set_node(cast(Any, world.new))
    await world.wait_for_replies(5)

    assert world.order == world.new.received == ["a", "b", "c", "d", "e"]
    assert world.old.received == ["a", "b", "c"]
    assert world.failed() == []


async def test_call_that_a_later_one_overtook_fails(world: World) -> None:
    """It was refused while a later call ran, so a retry would be out of order."""
    world.old.answers = [TRYAGAIN, "+OK\r\n"]
    world.send("first", "second")
    await world.wait_for_replies(2)

    assert world.failed() == ["first"]
    assert world.replies["second"] == b"OK"
    assert world.old.received == ["first", "second"]


async def test_call_whose_key_has_migrated_is_sent_with_asking(world: World) -> None:
    """ASK sends one call to the other node, after ASKING."""
    world.cluster.wires["h:2"] = world.new.wire
    world.old.answers = [ASK, ASK]
    world.send("a")
    await world.wait_for_replies(1)
    world.send("b")
    await world.wait_for_replies(2)

    assert world.new.received == ["ASKING", "a"]
    assert world.old.received == ["a", "a", "b"]


async def test_call_of_a_slot_that_moves_too_long_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that waits for migrating keys must retry."""
    monkeypatch.setattr(slot_routes, "MOVING_S_MAX", 0.05)
    world.old.answers = [TRYAGAIN] * 200
    world.send("a")
    await world.wait_for_replies(1)

    assert world.failed() == ["a"]


async def test_calls_of_an_earlier_epoch_never_reach_another_node(world: World) -> None:
    """The new node may have lost data, so waiting calls and calls in flight fail."""
    world.old.may_answer.clear()
    world.old.answers = [MOVED]
    world.send("in flight")
    world.route.hold()
    world.send("waiting")

    world.route.fail_unsent()
    world.route.set_node(cast(Any, world.new))
    world.old.may_answer.set()
    world.send("later")
    await world.wait_for_replies(3)

    assert sorted(world.failed()) == ["in flight", "waiting"]
    assert world.new.received == ["later"]


async def test_calls_that_wait_too_long_or_exceed_the_limit_fail(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waits are bounded in time and number."""
    monkeypatch.setattr(slot_routes, "HELD_MAX", 2)
    route = world.route = make_route(world.cluster, 0.05)
    route.set_node(cast(Any, world.old))
    route.hold()

    world.send("a", "b", "one too many")
    await world.wait_for_replies(3)

    assert world.order[0] == "one too many"
    assert len(world.failed()) == 3
    assert world.old.received == []


async def test_calls_to_a_node_that_is_down_fail_at_once(world: World) -> None:
    """Calls in flight may have run. Later calls did not."""
    world.old.may_answer.clear()
    world.send("in flight")
    assert world.old.wire is not None
    world.old.wire.abort("lost")
    world.old.wire = None
    world.send("later")
    await world.wait_for_replies(2)

    assert len(world.failed()) == 2


async def test_route_that_is_closed_fails_all_calls(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A route that closes ends every waiting call with an error."""
    monkeypatch.setattr(slot_routes, "MOVING_S_MAX", TIMEOUT_S)
    world.old.answers = [TRYAGAIN] * 50
    world.send("a", "b")
    await eventually(lambda: len(world.old.received) > 3)
    world.send("c")

    world.route.close()
    await world.wait_for_replies(3)

    assert len(world.failed()) == 3
