"""The listening socket: alone or shared, and closed without losing who waits in its queue."""

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


class Greeter(asyncio.Protocol):
    """Says who it is and closes."""

    count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Greeter.count += 1
        writing = cast(asyncio.Transport, transport)
        writing.write(b"hello")
        writing.close()


@pytest.fixture(autouse=True)
def greetings() -> None:
    """Counts from 0."""
    Greeter.count = 0


@pytest.fixture
def clients() -> Iterator[contextlib.ExitStack]:
    """Sockets that are closed with the test."""
    with contextlib.ExitStack() as stack:
        yield stack


def connect(clients: contextlib.ExitStack, port: int, count: int) -> list[socket.socket]:
    """Connect while the event loop is held up: the connections wait in the kernel's queue."""
    return [
        clients.enter_context(socket.create_connection((HOST, port), timeout=20))
        for _ in range(count)
    ]


async def test_listener_closed_accepts_who_waited_in_its_queue(
    clients: contextlib.ExitStack,
) -> None:
    """Connections that the kernel has accepted are not reset."""
    listener = Listener(open_socket(HOST, 0), Greeter)
    listener.open()
    waiting = connect(clients, listener.port, 50)
    assert Greeter.count == 0

    port = listener.port
    await listener.close()

    await eventually(lambda: Greeter.count == 50)
    for client in waiting:
        assert await asyncio.to_thread(client.recv, 10) == b"hello"
    with pytest.raises(ConnectionRefusedError):
        connect(clients, port, 1)


async def test_listener_closed_survives_who_left_while_waiting(
    clients: contextlib.ExitStack,
) -> None:
    """A connection that ended in the queue does not delay others."""
    listener = Listener(open_socket(HOST, 0), Greeter)
    listener.open()
    first, second = connect(clients, listener.port, 2)
    linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # close with a reset
    first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    first.close()

    await listener.close()
    await listener.close()

    assert await asyncio.to_thread(second.recv, 10) == b"hello"


async def test_listeners_of_a_shared_port_hand_over_to_each_other(
    clients: contextlib.ExitStack,
) -> None:
    """A process that leaves a shared port passes new connections to the others."""
    held = clients.enter_context(reserve_port(HOST, 0))
    port = held.getsockname()[1]
    first = Listener(open_socket(HOST, port, is_shared=True), Greeter)
    second = Listener(open_socket(HOST, port, is_shared=True), Greeter)
    first.open()
    second.open()
    before = connect(clients, port, 40)

    await first.close()

    after = connect(clients, port, 20)
    await eventually(lambda: Greeter.count == 60)
    for client in (*before, *after):
        assert await asyncio.to_thread(client.recv, 10) == b"hello"
    await second.close()


def test_reserved_port_takes_no_connection(clients: contextlib.ExitStack) -> None:
    """The supervisor reserves the port without accepting."""
    held = clients.enter_context(reserve_port(HOST, 0))

    with pytest.raises(ConnectionRefusedError):
        connect(clients, held.getsockname()[1], 1)


@pytest.mark.parametrize("is_shared", [False, True])
def test_port_that_somebody_listens_on_is_not_reserved(
    clients: contextlib.ExitStack, is_shared: bool
) -> None:
    """Not even if the listener shares it: it is another gateway."""
    port = free_port()
    other = clients.enter_context(open_socket(HOST, port, is_shared=is_shared))
    other.listen()

    with pytest.raises(ConfigError, match=f"cannot listen on {HOST}:{port}"):
        reserve_port(HOST, port)
