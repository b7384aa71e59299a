"""Startup code for commands that run a process: settings, logs, event loop, Redis check."""

from __future__ import annotations

import socket
from urllib.parse import SplitResult, urlsplit

from chatserver.config import Redis, Settings, load_settings
from chatserver.errors import Unavailable
from chatserver.process_runtime import run
from chatserver.telemetry.logs import configure_logs

__all__ = ["prepare", "require_redis", "run"]


def prepare(process: str, *, requires_secret: bool = False) -> Settings:
    """Load the settings and configure logging for a process; see `load_settings`.

    Raises:
        ConfigError: the settings are invalid; lists every problem.
    """
    settings = load_settings(requires_secret=requires_secret)
    configure_logs(settings.telemetry.format, settings.telemetry.level, process=process)
    return settings


def require_redis(settings: Redis) -> None:
    """Check that Redis responds at the configured address.

    Raises:
        Unavailable: no server responds, or it is not Redis; the message says what to do.
    """
    parts = urlsplit(settings.url)
    port = parts.port or 6379
    host = parts.hostname or "127.0.0.1"
    name = parts.path if parts.scheme == "unix" else f"{host}:{port}"
    try:
        with _connect(parts, host, port, settings.call_timeout_s) as connection:
            if parts.scheme == "rediss":
                is_redis = True  # assumed: a check would need a TLS handshake
            else:
                connection.sendall(b"PING\r\n")
                # An error reply is fine: Redis may require a password, or be loading its data.
                is_redis = connection.recv(16)[:1] in (b"+", b"-")
    except OSError as exc:
        from chatserver.hot.redis.connection_setup import RedisAddress, describe_failure

        raise Unavailable(describe_failure(RedisAddress(settings.url), exc)) from exc
    if not is_redis:
        raise Unavailable(f"redis at {name}: the server at this address is not Redis")


def _connect(parts: SplitResult, host: str, port: int, timeout_s: float) -> socket.socket:
    if parts.scheme != "unix":
        return socket.create_connection((host, port), timeout_s)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout_s)
        connection.connect(parts.path)
    except BaseException:
        connection.close()
        raise
    return connection
