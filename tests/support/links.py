"""TCP proxies in a separate thread, for tests that start processes behind them.

`Server.start` blocks the test's event loop until a process is ready. A proxy on that loop would
block the process too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Self

from tests.support.deadlines import EXIT_S
from tests.support.servers.tcp_proxy import Direction, TcpProxy


class Links:
    """Opens links that a test can break. Use as a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._proxies: list[TcpProxy] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for proxy in self._proxies:
            asyncio.run_coroutine_threadsafe(proxy.__aexit__(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(EXIT_S)
        self._loop.close()

    def open(self, target_port: int) -> Link:
        """Open a link to a port of this machine."""
        proxy = TcpProxy(target_port)
        asyncio.run_coroutine_threadsafe(proxy.__aenter__(), self._loop).result()
        self._proxies.append(proxy)
        return Link(proxy, self._loop)


class BareLink:
    """A breakable link on the test's own event loop, with the faults of `TcpProxy`."""

    def __init__(self, proxy: TcpProxy) -> None:
        self._proxy = proxy

    def _call(self, work: Callable[[], None]) -> None:
        work()

    def delay(self, latency_s: float) -> None:
        """Delay each chunk."""
        self._proxy.latency_s = latency_s

    def throttle(self, bytes_per_s: int) -> None:
        """Limit the bandwidth of each connection and direction."""
        self._proxy.bytes_per_s = bytes_per_s

    def blackhole(self, *directions: Direction) -> None:
        """Drop the bytes of these directions; connections appear to be open."""
        self._proxy.blackhole(*directions)

    def reset(self) -> None:
        """Reset every open connection."""
        self._call(self._proxy.reset)

    def refuse(self) -> None:
        """Reset every open and every new connection."""
        self._call(self._proxy.refuse)

    def end_faults(self) -> None:
        """End all faults."""
        self._call(self._proxy.end_faults)


class Link(BareLink):
    """A breakable link in the thread of its `Links`."""

    def __init__(self, proxy: TcpProxy, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(proxy)
        self.port = proxy.port
        self._loop = loop

    def _call(self, work: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(work)
