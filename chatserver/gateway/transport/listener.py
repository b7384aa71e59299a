"""Listening socket: bind, optional port sharing between processes, and lossless close.

Processes that share a port (SO_REUSEPORT) each have their own accept queue. Closing a socket resets
the connections in its queue, so `close` accepts them first. Two kinds of connections may still be
reset: those queued between the last accept and the close, and those in a TCP handshake. Linux 5.14
with `net.ipv4.tcp_migrate_req=1` avoids the second kind. A client whose connection is reset has
not sent any data yet, and reconnects.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from chatserver.connection_acceptor import Acceptor
from chatserver.errors import ConfigError

# Send buffer of each socket. By default, the kernel buffers megabytes for a slow client.
SEND_BUFFER_BYTES = 262_144
TCP_USER_TIMEOUT_MS = 20_000


class Listener:
    """Accepts connections on a bound socket until it is closed."""

    def __init__(self, sock: socket.socket, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._sock = sock
        self._acceptor = Acceptor(sock, make_protocol)
        self._is_open = False

    @property
    def port(self) -> int:
        port: int = self._sock.getsockname()[1]
        return port

    def open(self) -> None:
        self._acceptor.open()
        self._is_open = True

    async def close(self) -> None:
        """Accept all queued connections and stop listening. Idempotent.

        Cancellation: the socket is closed, and queued connections may be reset.
        """
        if not self._is_open:
            return
        self._is_open = False
        self._acceptor.close()
        with self._sock:
            await self._acceptor.drain()


def open_socket(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """Bind the listening socket; `is_shared` sets SO_REUSEPORT.

    Raises:
        ConfigError: the address cannot be used; the message names the address and the reason.
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
        raise ConfigError(f"gateway.port: cannot listen on {host}:{port} ({exc})") from exc
    return sock


def reserve_port(host: str, port: int) -> socket.socket:
    """Reserve a shared port with a bound socket that does not listen; port 0 selects a free port.

    Raises:
        ConfigError: the address cannot be used, or another process already listens on it.
    """
    if port:
        # Bind exclusively first: with SO_REUSEPORT, the bind succeeds even if another process of
        # this OS user already shares the port.
        open_socket(host, port).close()
    return open_socket(host, port, is_shared=True)
