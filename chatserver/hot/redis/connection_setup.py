"""Redis server connections: open, authenticate, and check the server configuration."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import urllib.parse
from collections.abc import AsyncIterator
from typing import Any

from redis.asyncio.connection import parse_url

from chatserver import config
from chatserver.config.section import is_loopback
from chatserver.errors import REDIS_DOWN, ConfigError, CorruptData, Unavailable
from chatserver.hot.redis.durability import count_replicas
from chatserver.hot.redis.pipelined_connection import PipelinedConnection
from chatserver.hot.redis.replies import call_on
from chatserver.hot.redis.scripts import all_scripts

_TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
REDIS_VERSION_MIN = 7  # Redis 7 is the first version with script flags such as allow-oom.


class RedisAddress:
    """A server's address and credentials."""

    def __init__(self, url: str) -> None:
        """Parse a URL in redis-py's format, as `redis.url` and `redis.sentinels` have it."""
        self._parsed: dict[str, Any] = dict(parse_url(url))
        self.url = url
        self.path: str | None = self._parsed.get("path")
        self.host: str = self._parsed.get("host", "localhost")
        self.port: int = self._parsed.get("port", 6379)
        self.database: int = self._parsed.get("db", 0)
        self.is_tls = "path" not in self._parsed and "connection_class" in self._parsed

    @property
    def name(self) -> str:
        """The server's name for errors and logs, without secrets."""
        return self.path or f"{self.host}:{self.port}"

    def credentials(self) -> list[str]:
        """Return the arguments for AUTH; empty if there is no password."""
        password = self._parsed.get("password")
        if not password:
            return []
        user = self._parsed.get("username")
        return [user, password] if user else [password]

    def at(self, host: str, port: int) -> RedisAddress:
        """Return the address of another server with the same credentials."""
        parts = urllib.parse.urlsplit(self.url)
        user, separator, _ = parts.netloc.rpartition("@")
        spelled = f"[{host}]" if ":" in host else host
        netloc = f"{user}{separator}{spelled}:{port}"
        return RedisAddress(urllib.parse.urlunsplit(parts._replace(netloc=netloc)))

    def create_tls(self) -> ssl.SSLContext | None:
        """Return the TLS context for a connection; None without TLS.

        Raises:
            ConfigError: a file in the options of the URL cannot be used.
        """
        if not self.is_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self._parsed.get("ssl_ca_certs"))
            if certificate := self._parsed.get("ssl_certfile"):
                context.load_cert_chain(certificate, self._parsed.get("ssl_keyfile"))
        except OSError as exc:  # also if a file has no certificate (SSLError)
            files = ", ".join(
                f"{name}={self._parsed[name]}" for name in _TLS_OPTIONS if name in self._parsed
            )
            reason = f"{exc.strerror or exc}"
            raise ConfigError(f"redis.url (CHAT_REDIS_URL): {files}: {reason}") from exc
        return context


async def open_connection(address: RedisAddress, settings: config.Redis) -> PipelinedConnection:
    """Open a connection.

    Raises:
        Unavailable: no server responds; the message says what to do.
        ConfigError: a file in the options of the URL cannot be used.
    """
    loop = asyncio.get_running_loop()

    def make() -> PipelinedConnection:
        return PipelinedConnection(address.name, settings.call_timeout_s)

    tls = address.create_tls()
    try:
        async with asyncio.timeout(settings.call_timeout_s):
            if address.path is not None:
                transport, wire = await loop.create_unix_connection(make, address.path)
            else:
                transport, wire = await loop.create_connection(
                    make, address.host, address.port, ssl=tls
                )
    except (OSError, TimeoutError) as exc:
        raise Unavailable(describe_failure(address, exc), public=REDIS_DOWN) from exc
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return wire


def describe_failure(address: RedisAddress, error: OSError) -> str:
    """Return why no connection could be opened, and what to do about it."""
    reason = error.strerror or str(error) or "timed out"
    match error:
        case ssl.SSLCertVerificationError():
            reason = f"its certificate is invalid ({error.verify_message})"
            fix = (
                "use the host name in the certificate; for a private CA, add ?ssl_ca_certs=FILE to "
                "redis.url (CHAT_REDIS_URL)"
            )
        case ssl.SSLError():
            reason = f"TLS failed ({error.reason or reason})"
            fix = "check that the server speaks TLS at this port, and which certificate it requires"
        case socket.gaierror():
            fix = "check the host in redis.url (CHAT_REDIS_URL), and DNS"
        case _ if address.path is not None or is_loopback(address.host):
            fix = "start `redis-server` or `chatserver dev`, or set redis.url (CHAT_REDIS_URL)"
        case _:
            fix = "check redis.url (CHAT_REDIS_URL), the network and the firewall"
    return f"redis at {address.name}: cannot connect ({reason}); {fix}"


@contextlib.asynccontextmanager
async def handshake_deadline(
    wire: PipelinedConnection, settings: config.Redis
) -> AsyncIterator[None]:
    """Limit the time for a connection's handshake; close the connection on failure.

    Raises:
        Unavailable: the handshake timed out.
    """
    try:
        async with asyncio.timeout(settings.call_timeout_s * 2):
            yield
    except TimeoutError:
        wire.abort(f"redis at {wire.name}: HELLO timed out")
        raise Unavailable(f"redis at {wire.name}: HELLO timed out", public=REDIS_DOWN) from None
    except BaseException:
        wire.abort(f"redis at {wire.name}: HELLO failed")
        raise


async def log_in(wire: PipelinedConnection, address: RedisAddress) -> None:
    """Authenticate, and select the database."""
    credentials = address.credentials()
    if credentials:
        await call_on(wire, "AUTH", *credentials)
    if address.database:
        await call_on(wire, "SELECT", address.database)


async def prepare(wire: PipelinedConnection, settings: config.Redis) -> None:
    """Check the server's version and configuration, then load the scripts.

    Guarantees:
        Cost: one round trip, and a second one if scripts are missing.

    Raises:
        ConfigError: the server is older than Redis 7, evicts keys, or lacks WAITAOF where required.
    """
    scripts = all_scripts()
    server, memory, are_loaded = await asyncio.gather(
        call_on(wire, "INFO", "server"),
        call_on(wire, "INFO", "memory"),
        call_on(wire, "SCRIPT", "EXISTS", *(script.sha for script in scripts)),
    )
    version = parse_info(server)["redis_version"]
    if int(version.partition(".")[0]) < REDIS_VERSION_MIN:
        raise ConfigError(
            f"redis at {wire.name}: version is {version}; Redis 7.0 or newer, or Valkey, is "
            "required"
        )
    # From INFO, because managed services and restricted users have no CONFIG.
    policy = parse_info(memory).get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise ConfigError(
            f"redis at {wire.name}: maxmemory-policy is {policy}; set it to noeviction"
        )
    if settings.wait_fsync:
        await _require_fsync(wire, version)
    missing = [script for script, is_known in zip(scripts, are_loaded, strict=True) if not is_known]
    await asyncio.gather(*(call_on(wire, "SCRIPT", "LOAD", script.source) for script in missing))


async def _require_fsync(wire: PipelinedConnection, version: str) -> None:
    try:
        await call_on(wire, "WAITAOF", 1, 0, 1)
    except CorruptData as exc:
        raise ConfigError(
            "redis.wait_fsync (CHAT_REDIS_WAIT_FSYNC): needs Redis 7.2 or Valkey, with "
            f"appendonly yes; {wire.name} has version {version}: {exc.message}"
        ) from exc


def parse_info(text: bytes) -> dict[str, str]:
    """Parse the fields of an INFO reply."""
    return dict(line.split(":", 1) for line in text.decode().splitlines() if ":" in line)


async def read_replication(wire: PipelinedConnection) -> tuple[str, int]:
    """Return the replication id, and how many replicas acknowledge writes.

    The replication id changes if the server may have lost recent writes.
    """
    info = await call_on(wire, "INFO", "replication")
    return parse_info(info)["master_replid"], count_replicas(info.decode())
