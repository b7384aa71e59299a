"""HTTP/2 client for one server, for services that require HTTP/2.

Addresses, redirects and proxies are handled as in `chatserver.outbound.http_client`. TLS is always
used, and the server's certificate must be valid for its host name; SSL_CERT_FILE replaces the
system's certificate authorities.

All requests use one connection, which is opened when needed and kept until the server closes it.
If nothing has been received for `PING_AFTER_S`, the connection is checked with a ping before the
next request.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Final

from yarl import URL

from chatserver import __version__
from chatserver.config import Outbound as OutboundSettings
from chatserver.errors import SERVER_DOWN, BadRequest
from chatserver.outbound.allowed_destinations import Destinations, parse_url
from chatserver.outbound.http2_connection import Http2Connection
from chatserver.outbound.http_client import NOT_ALLOWED, Answer, Lookup, NotReached, system_lookup

PING_AFTER_S: Final = 30.0
ADDRESSES_MAX: Final = 4  # At most this many addresses of a host name are tried, in order.


class Http2:
    """HTTP/2 client for one server; see `open_http2`."""

    def __init__(
        self, url: URL, allowed: Destinations, lookup: Lookup, ping_after_s: float
    ) -> None:
        self._url = url
        self._allowed = allowed
        self._lookup = lookup
        self._ping_after_s = ping_after_s
        self._tls = ssl.create_default_context()
        self._tls.set_alpn_protocols(["h2"])
        self._loop = asyncio.get_running_loop()
        self._connect_lock = asyncio.Lock()
        self._connections: list[
            Http2Connection
        ] = []  # Requests use the last connection; the others are closing.

    async def post(
        self,
        path: str,
        *,
        body: bytes,
        headers: Mapping[str, str],
        timeout_s: float,
        response_bytes_max: int,
    ) -> Answer:
        """Send a body and return the response, whatever its status.

        Guarantees:
            Bounded: ends within `timeout_s`; buffers at most `response_bytes_max` of a response.
            At most once: there are no retries. After `Unavailable`, the request may have arrived.
            Cancellation: safe; the connection stays open for other requests.

        Raises:
            BadRequest: the address is not allowed.
            NotReached: the server has certainly not processed the request.
            Unavailable: the response did not arrive in time, or was too long or invalid.
        """
        deadline = self._loop.time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                connection = await self._get_connection(deadline)
        except TimeoutError as exc:
            raise NotReached(
                f"{self._url.host} could not be reached in time", public=SERVER_DOWN
            ) from exc
        head = [
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", self._url.authority),
            (":path", path),
            ("user-agent", f"chatserver/{__version__}"),
            ("content-length", str(len(body))),
            *headers.items(),
        ]
        return await connection.request(
            head, body, deadline=deadline, response_bytes_max=response_bytes_max
        )

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    async def _get_connection(self, deadline: float) -> Http2Connection:
        async with self._connect_lock:
            if self._connections and await self._connections[-1].is_alive():
                return self._connections[-1]
            connection = await self._connect(deadline)
            self._connections = [other for other in self._connections if not other.is_lost]
            self._connections.append(connection)
            return connection

    async def _connect(self, deadline: float) -> Http2Connection:
        host, port = self._url.host or "", self._url.port or 443
        try:
            addresses = await self._lookup(host, port)
        except OSError as exc:
            raise NotReached(f"unknown host {host}", public=SERVER_DOWN) from exc
        # Check all addresses: a name with both private and public addresses indicates an attack.
        if not all(self._allowed.is_allowed(address, port) for address in addresses):
            raise BadRequest(NOT_ALLOWED)
        reason: Exception | None = None
        tried = addresses[:ADDRESSES_MAX]
        for number, address in enumerate(tried):
            share_s = (deadline - self._loop.time()) / (len(tried) - number)
            try:
                async with asyncio.timeout(share_s):
                    return await self._connect_to(address, host, port)
            except (OSError, TimeoutError, NotReached) as exc:  # SSL errors are OSErrors, too
                reason = exc
        detail = f"{host} could not be reached: {type(reason).__name__}"
        raise NotReached(
            reason.message if isinstance(reason, NotReached) else detail, public=SERVER_DOWN
        ) from reason

    async def _connect_to(self, address: str, host: str, port: int) -> Http2Connection:
        transport, connection = await self._loop.create_connection(
            lambda: Http2Connection(host, self._ping_after_s),
            address,
            port,
            ssl=self._tls,
            server_hostname=host,
        )
        try:
            if transport.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
                raise NotReached(f"{host} does not support HTTP/2", public=SERVER_DOWN)
            await connection.wait_until_open()
        except BaseException:
            transport.abort()
            raise
        return connection


def parse_origin(url: str) -> URL:
    """Parse the https URL of a server, without a path.

    Raises:
        BadRequest: `url` is not https, or it has a path or a query.
    """
    parsed = parse_url(url)
    if parsed.scheme != "https" or parsed.path not in ("", "/") or parsed.query_string:
        raise BadRequest("the URL must be https://host or https://host:port")
    return parsed


@contextlib.asynccontextmanager
async def open_http2(
    url: str,
    settings: OutboundSettings,
    lookup: Lookup = system_lookup,
    ping_after_s: float = PING_AFTER_S,
) -> AsyncIterator[Http2]:
    """Create a client for the server at `url`; it connects on the first request.

    Raises:
        BadRequest: the URL is not the https URL of a server.
    """
    allowed = Destinations(settings.allow_private, settings.ports)
    opened = Http2(parse_origin(url), allowed, lookup, ping_after_s)
    try:
        yield opened
    finally:
        opened.close()
