"""Listening sockets that accept a bounded number of connections per tick of the event loop.

asyncio accepts as many connections in one tick as the kernel may queue. A burst of thousands, from
one hostile client or after a network failure, would then delay every other client for as long as it
takes to set them up. Here the kernel queues up to `QUEUE_MAX`, and a tick accepts
`ACCEPTED_IN_TICK_MAX` of them.
"""

from __future__ import annotations

import socket
from typing import Final

QUEUE_MAX: Final = 4096  # connections that the kernel queues; further ones are tried again
ACCEPTED_IN_TICK_MAX: Final = 8


class ListeningSocket(socket.socket):
    """A socket for `create_server` with ``backlog=ACCEPTED_IN_TICK_MAX``."""

    def listen(self, backlog: int = QUEUE_MAX, /) -> None:
        """Listen with a queue of `QUEUE_MAX`, also if the event loop asks for a shorter one."""
        super().listen(max(backlog, QUEUE_MAX))
