"""What a session needs of the server that it is a part of."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from chatserver import config
from chatserver.app import GatewayParts
from chatserver.domain.ids import UserId
from chatserver.gateway.requests import Requests
from chatserver.service.stored import StoredWaits

if TYPE_CHECKING:  # they know sessions, which know the desk
    from chatserver.gateway.admission import Admission
    from chatserver.gateway.channels import Channels
    from chatserver.gateway.connection import Connection
    from chatserver.gateway.places import Places
    from chatserver.gateway.registry import Registry
    from chatserver.gateway.slowclients import SlowClients
    from chatserver.gateway.tokenends import TokenEnds


class Tally:
    """Plain counts of a gateway's hot path; the server adds them to the metrics each second.

    Of the events `pushed`, those above `noted` are of this loop turn, and of now: not what a device
    missed. `first` is the body of one of them, committed before the others as a rule; `traced` has
    them all, if traces are on.
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
        """Note an event of now that goes to `count` devices with the end of this turn."""
        if self.first is None:
            self.first = body
        if self.traced is not None:
            self.traced.append((body, count))


class Desk(Protocol):
    """What a session needs of its server."""

    settings: config.Gateway
    all_settings: config.Settings
    parts: GatewayParts
    places: Places
    admission: Admission
    requests: Requests
    registry: Registry
    stored: StoredWaits
    channels: Channels
    ends: TokenEnds
    tally: Tally
    slow_clients: SlowClients

    def spawn(
        self,
        work: Coroutine[Any, Any, None],
        name: str,
        on_crash: Callable[[], None] | None = None,
    ) -> None:
        """Run a task that ends with the server; `on_crash` answers for one that failed."""

    def authenticated(self, connection: Connection) -> None:
        """A hello was accepted: the connection counts as a user's from now on."""

    def left(self, user: UserId) -> None:
        """The user's last session here is over."""
