"""The listening socket: bound, perhaps shared with sibling processes, and closed without losing.

Processes that share a port (SO_REUSEPORT) each have a queue of their own, and the kernel puts each
new connection into one of them. Closing a socket resets what waits in its queue, so `close` takes
all of it out first. What remains: a connection that gets there between the last look and the close
(microseconds), and one whose TCP handshake is under way just then (a round trip), unless the kernel
hands those to a sibling (Linux 5.14 with ``net.ipv4.tcp_migrate_req=1``). Such a client sees a
reset before it has sent anything, and tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from chatserver.errors import ConfigError

SEND_BUFFER_BYTES = 262_144  # a slow socket otherwise hides megabytes in the kernel
TCP_USER_TIMEOUT_MS = 20_000
BACKLOG = 4096


class Listener:
    """Accepts on a bound socket until it is closed."""

    def __init__(self, sock: socket.socket, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._sock = sock
        self._make_protocol = make_protocol
        self._queue: socket.socket | None = None
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._sock.getsockname()[1]
        return port

    async def open(self) -> None:
        """Begin to accept."""
        # The loop closes its own descriptor at the end; the queue lives until this one goes, too.
        self._queue = self._sock.dup()
        self._queue.setblocking(False)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._make_protocol, sock=self._sock, backlog=BACKLOG
        )

    async def close(self) -> None:
        """Accept what waits in the queue, and listen no more. Closing twice does nothing.

        Cancellation: the socket is closed, what waited may be reset.
        """
        queue, self._queue = self._queue, None
        if queue is None or self._server is None:
            return
        self._server.close()
        with queue:
            while True:
                try:
                    accepted, _ = queue.accept()
                except BlockingIOError:
                    return
                except OSError:
                    continue  # that one went away while it waited
                # It may go away here as well.
                with contextlib.suppress(OSError):
                    loop = asyncio.get_running_loop()
                    await loop.connect_accepted_socket(self._make_protocol, accepted)


def open_socket(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """Bind the listening socket; `is_shared`: others that ask for it, too, may have the same port.

    Raises:
        ConfigError: the address cannot be used; the message says which and why.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_shared:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, TCP_USER_TIMEOUT_MS)
    try:
        sock.bind((host, port))
    except OSError as exc:
        sock.close()
        raise ConfigError([f"gateway.port: cannot listen on {host}:{port} ({exc})"]) from exc
    return sock


def reserve_port(host: str, port: int) -> socket.socket:
    """Return a socket that holds a port to be shared; it does not listen, so it gets nothing.

    Port 0 takes a free one.

    Raises:
        ConfigError: the address cannot be used, or somebody listens there already.
    """
    if port:
        # Alone first: with sharing, the kernel lets in whoever of this user shares it already.
        open_socket(host, port).close()
    return open_socket(host, port, is_shared=True)
