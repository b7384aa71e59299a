"""HTTP client for outbound requests, except to services that require HTTP/2.

The client connects only to addresses that `allowed_destinations` allows. It resolves the host name
once, checks all addresses and connects to one of them. That address is checked again when the
socket is created. Redirects are returned like other responses, and never followed. Proxy
environment variables and cookies are ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from chatserver import __version__
from chatserver.config import Outbound as OutboundSettings
from chatserver.errors import SERVER_DOWN, BadRequest, Unavailable
from chatserver.outbound.allowed_destinations import Destinations, parse_url

CONNECTIONS_MAX = 200  # maximum connections per process
CONNECTIONS_PER_HOST_MAX = 32

# A function that resolves a host and port to IP addresses (strings).
Lookup = Callable[[str, int], Awaitable[Sequence[str]]]

NOT_ALLOWED = "this address or port is not allowed; see outbound.ports and outbound.allow_private"
_DNS_CACHE_S = 30  # how long a checked DNS response is cached


class NotReached(Unavailable):
    """The server has certainly not processed the request."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_ok(self) -> bool:
        return 200 <= self.status < 300


class HttpClient:
    """HTTP client for other servers; see `open_outbound`."""

    def __init__(self, session: aiohttp.ClientSession, allowed: Destinations) -> None:
        self._session = session
        self._allowed = allowed

    async def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float,
        response_bytes_max: int,
        is_truncated: bool = False,
    ) -> Answer:
        """Fetch a document; see `post` for guarantees and errors.

        With `is_truncated`, a longer response is truncated to `response_bytes_max`.
        """
        return await self._request(
            method="GET",
            url=url,
            body=None,
            headers=headers,
            timeout_s=timeout_s,
            response_bytes_max=response_bytes_max,
            is_truncated=is_truncated,
        )

    async def post(
        self,
        url: str,
        *,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        timeout_s: float,
        response_bytes_max: int,
    ) -> Answer:
        """Send a body and return the response, whatever its status.

        Guarantees:
            Bounded: ends within `timeout_s`; buffers at most `response_bytes_max` of a response.
            At most once: there are no retries. After `Unavailable`, the request may have arrived.
            Cancellation: safe; the connection is closed.

        Raises:
            BadRequest: the URL or a header is malformed, or the address is not allowed.
            NotReached: no connection could be made, so the request did not arrive.
            Unavailable: the response did not arrive in time, or was too long or invalid.
        """
        return await self._request(
            method="POST",
            url=url,
            body=body,
            headers=headers,
            timeout_s=timeout_s,
            response_bytes_max=response_bytes_max,
        )

    async def _request(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        timeout_s: float,
        response_bytes_max: int,
        is_truncated: bool = False,
    ) -> Answer:
        target = self._check(url)
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(
                    method, target, data=body, headers=headers, allow_redirects=False
                ) as response,
            ):
                return await _read(response, response_bytes_max, is_truncated)
        except TimeoutError as exc:
            raise Unavailable(
                f"{target.host} did not respond within {timeout_s:g} s", public=SERVER_DOWN
            ) from exc
        except aiohttp.InvalidURL as exc:
            raise BadRequest("invalid URL") from exc
        except aiohttp.ClientConnectorError as exc:
            raise NotReached(f"{target.host} could not be reached", public=SERVER_DOWN) from exc
        except (aiohttp.ClientError, OSError) as exc:
            raise Unavailable(
                f"the request to {target.host} failed: {type(exc).__name__}", public=SERVER_DOWN
            ) from exc
        except ValueError as exc:  # for example, a header contains a line break
            raise BadRequest("the request is not valid HTTP") from exc

    def _check(self, url: str) -> URL:
        target = parse_url(url)
        host = target.host or ""
        # aiohttp calls the resolver, which checks addresses, only for host names. Check an IP
        # address here.
        is_address = ":" in host or host.replace(".", "").isdigit()
        if is_address and not self._allowed.is_allowed(host, target.port or 0):
            raise BadRequest(NOT_ALLOWED)
        return target


async def _read(response: aiohttp.ClientResponse, bytes_max: int, is_truncated: bool) -> Answer:
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Unavailable("the response is compressed, although compression was not requested")
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > bytes_max:
            response.close()
            if is_truncated:
                del body[bytes_max:]
                break
            raise Unavailable(f"the response is longer than {bytes_max} bytes")
    named = {name.lower(): value for name, value in response.headers.items()}
    return Answer(response.status, named, bytes(body))


class _CheckedResolver(AbstractResolver):
    """Resolves host names; raises BadRequest if any address of a name is not allowed."""

    def __init__(self, lookup: Lookup, allowed: Destinations) -> None:
        self._lookup = lookup
        self._allowed = allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = await self._lookup(host, port)
        # Check all addresses: a name with both private and public addresses indicates an attack.
        if not all(self._allowed.is_allowed(address, port) for address in addresses):
            raise BadRequest(NOT_ALLOWED)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Do nothing."""


async def system_lookup(host: str, port: int) -> Sequence[str]:
    """Resolve a host name with the system's resolver. Raises OSError."""
    addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in addresses))


@contextlib.asynccontextmanager
async def open_outbound(
    settings: OutboundSettings, lookup: Lookup = system_lookup
) -> AsyncIterator[HttpClient]:
    """Open the client; `lookup` resolves host names."""
    allowed = Destinations(settings.allow_private, settings.ports)

    def make_socket(address: Any) -> socket.socket:
        family, kind, proto, _, sockaddr = address
        if not allowed.is_allowed(str(sockaddr[0]), int(sockaddr[1])):
            raise OSError(NOT_ALLOWED)
        return socket.socket(family=family, type=kind, proto=proto)

    connector = aiohttp.TCPConnector(
        resolver=_CheckedResolver(lookup, allowed),
        socket_factory=make_socket,
        limit=CONNECTIONS_MAX,
        limit_per_host=CONNECTIONS_PER_HOST_MAX,
        ttl_dns_cache=_DNS_CACHE_S,
    )
    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None),  # each call has its own deadline
        headers={"User-Agent": f"chatserver/{__version__}", "Accept-Encoding": "identity"},
    ) as session:
        yield HttpClient(session, allowed)


DOCUMENT_TIMEOUT_S = 2.0
DOCUMENT_BYTES_MAX = 65_536


async def fetch_document(outbound: HttpClient, url: str) -> bytes:
    """Return the document at `url`, at most 64 KB.

    Raises:
        Unavailable: the document cannot be fetched now, or the address is not allowed.
    """
    try:
        response = await outbound.get(
            url, timeout_s=DOCUMENT_TIMEOUT_S, response_bytes_max=DOCUMENT_BYTES_MAX
        )
    except BadRequest as exc:
        raise Unavailable(exc.message, public=SERVER_DOWN) from exc
    if not response.is_ok:
        raise Unavailable(f"response status {response.status}")
    return response.body
