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
    from chatserver.gateway.places import Places
    from chatserver.gateway.registry import Registry
    from chatserver.gateway.tokenends import TokenEnds


class Tally:
    """Plain counts of a gateway's hot path; the server adds them to the metrics each second."""

    __slots__ = ("acked", "dups", "pushed", "refused")

    def __init__(self) -> None:
        self.acked = 0
        self.dups = 0
        self.refused: dict[str, int] = {}
        self.pushed = 0


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

    def spawn(
        self,
        work: Coroutine[Any, Any, None],
        name: str,
        on_crash: Callable[[], None] | None = None,
    ) -> None:
        """Run a task that ends with the server; `on_crash` answers for one that failed."""

    def left(self, user: UserId) -> None:
        """The user's last session here is over."""
