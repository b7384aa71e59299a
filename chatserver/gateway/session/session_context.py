"""Session context: the server interface that sessions use, and hot-path counters."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from chatserver import config
from chatserver.container import GatewayContainer
from chatserver.domain.ids import UserId
from chatserver.gateway.session.requests import Requests
from chatserver.service.messaging.stored_acks import StoredWaits

if TYPE_CHECKING:  # these import sessions, which import `SessionContext`
    from chatserver.gateway.delivery.large_chats import Channels
    from chatserver.gateway.session.session_directory import SessionDirectory
    from chatserver.gateway.session.session_registry import SessionRegistry
    from chatserver.gateway.session.token_expiry import TokenExpiry
    from chatserver.gateway.transport.admission_control import Admission
    from chatserver.gateway.transport.connection import Connection
    from chatserver.gateway.transport.slow_clients import SlowClients


class Tally:
    """Plain counters of a gateway's hot path; the server adds them to the metrics every second.

    The events counted in `pushed` above `noted` belong to this loop tick and are new, not catch-up
    events. `first` is the body of one of them, normally the first committed. `traced` has all of
    them if tracing is enabled.
    """

    __slots__ = (
        "acked",
        "dups",
        "first",
        "noted",
        "pushed",
        "refused",
        "stored",
        "traced",
        "written_bytes",
    )

    def __init__(self) -> None:
        self.acked = 0
        self.stored = 0  # of `acked`: those that waited for the warm tier
        self.dups = 0
        self.refused: dict[str, int] = {}
        self.pushed = 0
        self.written_bytes = 0
        self.first: bytes | None = None
        self.noted = 0
        self.traced: list[tuple[bytes, int]] | None = None

    def note_fresh(self, body: bytes, count: int) -> None:
        """Record a new event that is written to `count` devices at the end of this tick."""
        if self.first is None:
            self.first = body
        if self.traced is not None:
            self.traced.append((body, count))


class SessionContext(Protocol):
    """The server, as used by sessions."""

    settings: config.Gateway
    all_settings: config.Settings
    parts: GatewayContainer
    places: SessionDirectory
    admission: Admission
    requests: Requests
    registry: SessionRegistry
    stored: StoredWaits
    channels: Channels
    ends: TokenExpiry
    tally: Tally
    slow_clients: SlowClients

    def spawn(
        self,
        work: Coroutine[Any, Any, None],
        name: str,
        on_crash: Callable[[], None] | None = None,
    ) -> None:
        """Run a task that ends with the server; `on_crash` is called if it fails."""

    def authenticated(self, connection: Connection) -> None:
        """Mark a connection as authenticated after an accepted hello."""

    def left(self, user: UserId) -> None:
        """Handle the end of a user's last session on this gateway."""
