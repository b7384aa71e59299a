"""WebSocket handshake: limits, header checks, and the protocol object of `websockets`."""

from __future__ import annotations

import logging
import re
from collections.abc import Container, Sequence

from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from chatserver.protocol.frames import PACKED_SUBPROTOCOL, SUBPROTOCOL

HANDSHAKE_TIMEOUT_S = 5.0  # timeout for the HTTP upgrade
REQUEST_BYTES_MAX = 16_384  # maximum size of the HTTP request head

# `websockets` logs each connection; these messages are suppressed, because sessions log their own.
_silent_logger = logging.getLogger("chatserver.websockets")
_silent_logger.setLevel(logging.CRITICAL)

# Valid `Host` header: uri-host [":" port], RFC 9110 section 7.2.
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]*)?")


def is_host_valid(request: Request) -> bool:
    """Return whether a request has one valid `Host` header (RFC 9112 section 3.2)."""
    hosts = request.headers.get_all("Host")
    return len(hosts) == 1 and _HOST.fullmatch(hosts[0]) is not None


def is_origin_allowed(request: Request, allowed: Container[str]) -> bool:
    """Return whether a request is not from a browser, or from an allowed origin."""
    origins = request.headers.get_all("Origin")
    if not origins:
        return True  # Not a browser: browsers always send Origin.
    return len(origins) == 1 and origins[0] in allowed


def create_protocol(frame_bytes_max: int) -> ServerProtocol:
    """Create the protocol object for a new connection. The `Host` checks the `Origin` header."""
    return ServerProtocol(
        origins=None,
        select_subprotocol=_select_subprotocol,
        max_size=frame_bytes_max,
        logger=_silent_logger,
    )


def _select_subprotocol(_: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Return the first supported subprotocol, or None."""
    return next((name for name in offered if name in (SUBPROTOCOL, PACKED_SUBPROTOCOL)), None)
