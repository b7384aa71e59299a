"""Acceptor: accepts a bounded number of connections per tick of the event loop.

The servers of asyncio and uvloop accept all queued connections in one tick. A burst of thousands of
connections, from one hostile client or after a network failure, would then delay all other clients
until the burst has been accepted. This class accepts at most `ACCEPTED_IN_TICK_MAX` connections
per tick; the kernel queues up to `QUEUE_MAX` more.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

import structlog

log = structlog.get_logger()

QUEUE_MAX: Final = 4096  # maximum connections in the kernel's queue
ACCEPTED_IN_TICK_MAX: Final = 8
PAUSE_S: Final = 1.0  # pause after a failure such as too many open files


class Acceptor:
    """Accepts the connections of one bound socket, which the caller closes."""

    def __init__(self, sock: socket.socket, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._sock = sock
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Listen and start accepting."""
        self._sock.setblocking(False)
        self._sock.listen(QUEUE_MAX)
        self._resume()

    def close(self) -> None:
        """Stop accepting; the kernel still queues connections until the socket is closed."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._sock)

    async def drain(self) -> None:
        """Accept the connections that are already queued. Call it after `close`."""
        while (accepted := self._accept_one()) is not None:
            await self._connect(accepted)
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        """Accept a few connections; the event loop calls this again if more are queued."""
        try:
            for _ in range(ACCEPTED_IN_TICK_MAX):
                accepted = self._accept_one()
                if accepted is None:
                    return
                task = self._loop.create_task(self._connect(accepted))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except OSError as exc:
            log.warning("acceptor.paused", error=str(exc), seconds=PAUSE_S)
            self._loop.remove_reader(self._sock)
            self._timer = self._loop.call_later(PAUSE_S, self._resume)

    def _accept_one(self) -> socket.socket | None:
        """Return an accepted connection; None if none is queued.

        Raises:
            OSError: the process has too many open files, or the kernel lacks memory.
        """
        while True:
            try:
                return self._sock.accept()[0]
            except BlockingIOError:
                return None
            except ConnectionError:
                continue  # the client disconnected while it was queued

    async def _connect(self, accepted: socket.socket) -> None:
        # Setting an option raises OSError if the client has disconnected.
        with contextlib.suppress(OSError):
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(self._make_protocol, accepted)
