"""Acceptor: a burst of connections is queued by the kernel and accepted in small parts."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop

from chatserver import connection_acceptor
from chatserver.connection_acceptor import ACCEPTED_IN_TICK_MAX, Acceptor

BURST = 20 * ACCEPTED_IN_TICK_MAX


class CountingProtocol(asyncio.Protocol):
    """Counts connections."""

    accepted = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        CountingProtocol.accepted += 1
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport.close()


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    """A bound socket."""
    CountingProtocol.accepted = 0
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


async def accept_burst(sock: socket.socket) -> int:
    """Return the most connections that one tick accepts of a burst."""
    server = Acceptor(sock, CountingProtocol)
    server.open()
    with contextlib.ExitStack() as stack:
        for _ in range(BURST):  # without a tick of the loop: the kernel completes the handshakes
            client = socket.create_connection(sock.getsockname(), timeout=0.5)
            stack.enter_context(client)
        largest = 0
        async with asyncio.timeout(20):
            while CountingProtocol.accepted < BURST:
                before = CountingProtocol.accepted
                await asyncio.sleep(0)
                largest = max(largest, CountingProtocol.accepted - before)
    server.close()
    return largest


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_burst_is_accepted_in_parts(run: Callable[..., int], sock: socket.socket) -> None:
    """The kernel queues the connections; other work of the loop runs between two parts."""
    assert 0 < run(accept_burst(sock)) <= ACCEPTED_IN_TICK_MAX


async def test_drain_after_close_accepts_queued_connections(sock: socket.socket) -> None:
    """Without `drain`, the kernel would reset the queued connections."""
    server = Acceptor(sock, CountingProtocol)
    server.open()
    server.close()
    with contextlib.ExitStack() as stack:
        for _ in range(BURST):
            stack.enter_context(socket.create_connection(sock.getsockname(), timeout=0.5))
        await server.drain()

    assert CountingProtocol.accepted == BURST


async def test_acceptor_pauses_while_the_process_has_too_many_open_files(
    sock: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The acceptor neither loops without a pause nor stops permanently."""
    failures = iter([OSError(errno.EMFILE, "too many open files")])
    accept_one = Acceptor._accept_one

    def accept(self: Acceptor) -> Any:
        if failure := next(failures, None):
            raise failure
        return accept_one(self)

    monkeypatch.setattr(Acceptor, "_accept_one", accept)
    monkeypatch.setattr(connection_acceptor, "PAUSE_S", 0.01)
    server = Acceptor(sock, CountingProtocol)
    server.open()
    with socket.create_connection(sock.getsockname(), timeout=0.5):
        async with asyncio.timeout(20):
            while not CountingProtocol.accepted:
                await asyncio.sleep(0.01)
    server.close()
