"""WebSocket handshake: the protocol object of `websockets` for one connection."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from chatserver.protocol.frames import PACKED_SUBPROTOCOL, SUBPROTOCOL

# `websockets` logs each connection; these messages are suppressed, because sessions log their own.
_silent_logger = logging.getLogger("chatserver.websockets")
_silent_logger.setLevel(logging.CRITICAL)


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
