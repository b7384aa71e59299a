"""Listening sockets: a burst of connections is accepted in small parts."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from chatserver.listening_socket import ACCEPTED_IN_TICK_MAX, ListeningSocket

BURST = 20 * ACCEPTED_IN_TICK_MAX


async def test_burst_is_queued_by_the_kernel_and_accepted_in_parts() -> None:
    """All of a burst connect at once; between two parts, other work of the loop runs."""
    accepted = 0

    class Counting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            nonlocal accepted
            accepted += 1

    sock = ListeningSocket(socket.AF_INET, socket.SOCK_STREAM)
    sock.bind(("127.0.0.1", 0))
    loop = asyncio.get_running_loop()
    async with await loop.create_server(Counting, sock=sock, backlog=ACCEPTED_IN_TICK_MAX):
        with contextlib.ExitStack() as stack:
            for _ in range(BURST):  # without a tick of the loop: the kernel accepts them
                client = socket.create_connection(sock.getsockname(), timeout=20)
                stack.enter_context(client)
            largest = 0
            async with asyncio.timeout(20):
                while accepted < BURST:
                    before = accepted
                    await asyncio.sleep(0)
                    largest = max(largest, accepted - before)

    assert 0 < largest <= ACCEPTED_IN_TICK_MAX
