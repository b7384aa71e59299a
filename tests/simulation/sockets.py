"""Listening and accepted sockets of the simulated network, as far as the product uses them."""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.process import get_process

if TYPE_CHECKING:
    from tests.simulation.network import Endpoint, Network


class Socket:
    """The parts of a socket that the product uses."""

    family = 0

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def setblocking(self, flag: bool) -> None:
        pass

    def setsockopt(self, *args: Any) -> None:
        pass

    def getpeername(self) -> tuple[str, int]:
        return self.endpoint.peer_address

    def close(self) -> None:
        self.endpoint.abort()


class ListeningSocket:
    """A bound socket, as `GatewayServer.run` expects it."""

    def __init__(self, network: Network, port: int) -> None:
        self._network = network
        self._port = port
        self._queue: deque[Endpoint] = deque()
        self._reader: tuple[Callable[..., object], Any, contextvars.Context] | None = None
        self._is_scheduled = False
        self.process = get_process()
        self.is_open = False

    def __enter__(self) -> ListeningSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def setblocking(self, flag: bool) -> None:
        pass

    def getsockname(self) -> tuple[str, int]:
        return ("10.0.0.1", self._port)

    def listen(self, backlog: int) -> None:
        self.is_open = True
        self._network.add_listener(self._port, self)

    def close(self) -> None:
        self.is_open = False
        self._network.remove_listener(self._port, self)
        while self._queue:
            self._queue.popleft().abort()

    def accept(self) -> tuple[Socket, tuple[str, int]]:
        if not self._queue:
            raise BlockingIOError
        endpoint = self._queue.popleft()
        return Socket(endpoint), endpoint.peer_address

    def add_reader(self, callback: Callable[..., object], args: Any) -> None:
        self._reader = (callback, args, contextvars.copy_context())
        self._schedule()

    def remove_reader(self) -> bool:
        self._reader = None
        return True

    def put(self, endpoint: Endpoint) -> None:
        """Queue a connection."""
        self._queue.append(endpoint)
        self._schedule()

    def _schedule(self) -> None:
        if self._queue and self._reader is not None and not self._is_scheduled:
            self._is_scheduled = True
            self._network.loop.call_soon(self._run_reader, context=self._reader[2])

    def _run_reader(self) -> None:
        self._is_scheduled = False
        if self._queue and self._reader is not None:
            self._reader[0](*self._reader[1])
            self._schedule()


class Server:
    """A server of `create_server`."""

    def __init__(self, network: Network, port: int, factory: Callable[[], Any]) -> None:
        self._network = network
        self._port = port
        self._factory = factory
        self.process = get_process()
        self._context = contextvars.copy_context()
        self.is_open = True
        self.sockets = [ListeningSocket(network, port)]
        network.add_listener(port, self)

    def put(self, endpoint: Endpoint) -> None:
        """Accept a connection."""
        self._network.loop.call_soon(self._accept, endpoint, context=self._context)

    def _accept(self, endpoint: Endpoint) -> None:
        endpoint.start(self._factory())

    def close(self) -> None:
        self.is_open = False
        self._network.remove_listener(self._port, self)

    async def wait_closed(self) -> None:
        pass

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
