"""The declaration of a request: see `request`."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from chatserver.domain.ids import UserId
from chatserver.protocol.request_costs import BASE, Cost

if TYPE_CHECKING:
    from chatserver.container.storage import StorageContainer

Frame = TypeVar("Frame", bound=msgspec.Struct)
Handler = Callable[["StorageContainer", UserId, Frame], Awaitable[msgspec.Struct]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operation(Generic[Frame]):
    """A request that runs in a worker.

    - `frame`: type of the request
    - `handler`: returns the reply, a server frame with the request's id. It is idempotent, because
      a call can be lost or repeated
    - `cost`: tokens of `limits.requests`
    - `is_needed_when_full`: whether a worker gets the request even if Redis is full, because it
      adds nothing. This is always so for `PROTECTIVE` requests
    - `charge`: returns the bytes to charge for what the request has added to Redis, from the
      request and its reply
    """

    frame: type[Frame]
    handler: Handler[Frame]
    cost: Cost = BASE
    is_needed_when_full: bool = False
    charge: Callable[[Frame, Any], int] | None = None


def request(
    frame: type[Frame],
    *,
    cost: Cost = BASE,
    is_needed_when_full: bool = False,
    charge: Callable[[Frame, Any], int] | None = None,
) -> Callable[[Handler[Frame]], Operation[Frame]]:
    """Declare the request of the decorated handler; see `Operation`."""

    def declare(handler: Handler[Frame]) -> Operation[Frame]:
        return Operation(
            frame=frame,
            handler=handler,
            cost=cost,
            is_needed_when_full=is_needed_when_full,
            charge=charge,
        )

    return declare
