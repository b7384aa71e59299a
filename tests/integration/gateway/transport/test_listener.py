"""The listening socket: exclusive or shared, and closed without resetting queued connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import cast

import pytest

from chatserver.errors import ConfigError
from chatserver.gateway.transport.listener import Listener, open_socket, reserve_port
from tests.support.servers.processes import eventually, free_port

HOST = "127.0.0.1"


class GreetingProtocol(asyncio.Protocol):
    """Counts connections; sends a greeting and closes."""

    count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        GreetingProtocol.count += 1
        writer = cast(asyncio.Transport, transport)
        writer.write(b"hello")
        writer.close()


@pytest.fixture(autouse=True)
def reset_count() -> None:
    """Count from 0 in each test."""
    GreetingProtocol.count = 0


@pytest.fixture
def clients() -> Iterator[contextlib.ExitStack]:
    """Client sockets, closed at the end of the test."""
    with contextlib.ExitStack() as stack:
        yield stack


def connect(clients: contextlib.ExitStack, port: int, count: int) -> list[socket.socket]:
    """Connect while the event loop is blocked: connections wait in the kernel's queue."""
    return [
        clients.enter_context(socket.create_connection((HOST, port), timeout=20))
        for _ in range(count)
    ]


async def test_closed_listener_accepts_queued_connections(
    clients: contextlib.ExitStack,
) -> None:
    """Connections that the kernel has accepted are served, not reset."""
    listener = Listener(open_socket(HOST, 0), GreetingProtocol)
    listener.open()
    waiting = connect(clients, listener.port, 50)
    assert GreetingProtocol.count == 0

    port = listener.port
    await listener.close()

    await eventually(lambda: GreetingProtocol.count == 50)
    for client in waiting:
        assert await asyncio.to_thread(client.recv, 10) == b"hello"
    with pytest.raises(ConnectionRefusedError):
        connect(clients, port, 1)


async def test_closed_listener_ignores_queued_connections_that_were_reset(
    clients: contextlib.ExitStack,
) -> None:
    """A connection that was reset in the queue does not affect the others."""
    listener = Listener(open_socket(HOST, 0), GreetingProtocol)
    listener.open()
    first, second = connect(clients, listener.port, 2)
    linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # this closes with a reset
    first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    first.close()

    await listener.close()
    await listener.close()

    assert await asyncio.to_thread(second.recv, 10) == b"hello"


async def test_closed_listener_of_a_shared_port_leaves_new_connections_to_the_other(
    clients: contextlib.ExitStack,
) -> None:
    """When one process stops listening on a shared port, the others get its connections."""
    reserved = clients.enter_context(reserve_port(HOST, 0))
    port = reserved.getsockname()[1]
    first = Listener(open_socket(HOST, port, is_shared=True), GreetingProtocol)
    second = Listener(open_socket(HOST, port, is_shared=True), GreetingProtocol)
    first.open()
    second.open()
    before = connect(clients, port, 40)

    await first.close()

    after = connect(clients, port, 20)
    await eventually(lambda: GreetingProtocol.count == 60)
    for client in (*before, *after):
        assert await asyncio.to_thread(client.recv, 10) == b"hello"
    await second.close()


def test_reserved_port_refuses_connections(clients: contextlib.ExitStack) -> None:
    """The supervisor reserves the port without listening on it."""
    reserved = clients.enter_context(reserve_port(HOST, 0))

    with pytest.raises(ConnectionRefusedError):
        connect(clients, reserved.getsockname()[1], 1)


@pytest.mark.parametrize("is_shared", [False, True])
def test_reserve_port_in_use_raises_config_error(
    clients: contextlib.ExitStack, is_shared: bool
) -> None:
    """It also fails if the other listener shares the port, which belongs to another gateway."""
    port = free_port()
    other = clients.enter_context(open_socket(HOST, port, is_shared=is_shared))
    other.listen()

    with pytest.raises(ConfigError, match=f"cannot listen on {HOST}:{port}"):
        reserve_port(HOST, port)
