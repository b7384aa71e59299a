"""The declaration of a request: see `Operation` and `request`."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack

import msgspec

from chatserver.domain.ids import UserId
from chatserver.protocol.frames import ClientFrame, Ok, ServerFrame
from chatserver.protocol.request_costs import BASE, REQUEST_COST_MAX, Cost

Frame = TypeVar("Frame", bound=ClientFrame)
Reply = msgspec.Struct | msgspec.Raw | None
# Parameters: the container of the process, the user and the frame. Handlers name the type of their
# container for type checkers only, so a gateway loads none of the libraries of a worker.
Handler = Callable[[Any, UserId, Frame], Awaitable[Reply]]
# Bytes of Redis memory. A number is increased by the size of the frame; a function gets that size.
Memory = int | Callable[[Any, int], int]


Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class RouteOptions(TypedDict, total=False):
    """Fields of `Route` that requests with a shared handler differ in."""

    body: str
    status: int
    creates: bool


@dataclasses.dataclass(frozen=True)
class Route:
    """The HTTP route of a request; `chatserver.api.declared_routes` builds it.

    The fields of the frame are taken from the path and the body, or from the query if `body` is
    empty. A page is returned with signed cursors.

    - `scope`: the scope that an API key needs
    - `name`: the operation id in the OpenAPI document; by default the name of the handler, or that
      of the request if the handler has a `summary` of its own
    - `summary`: the description in the OpenAPI document, if it is not that of the handler
    - `body`: the name of the type of the body
    - `result`: the response. None: no content, or the page. A name: this field of the reply. A
      type: a struct with the fields of the reply that have the same names
    - `status`: the status of the response
    - `creates`: the response is stored for the idempotency key of the request
    - `errors`: error statuses that do not follow from the other values
    - `descriptions`: of query parameters, by field
    - `has_signed_cursor`: the handler signs and checks the cursors itself
    """

    method: Method
    path: str
    scope: str
    _: dataclasses.KW_ONLY
    name: str = ""
    summary: str = ""
    body: str = ""
    result: str | type[msgspec.Struct] | None = None
    status: int = 200
    creates: bool = False
    errors: Sequence[int] = ()
    descriptions: dict[str, str] = dataclasses.field(default_factory=dict)
    has_signed_cursor: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operation(Generic[Frame]):
    """A request, and everything that the server, the HTTP API and the documents need to know of it.

    - `frame`: type of the request
    - `handler`: returns the reply, a server frame with the request's id. In a worker, it must be
      idempotent, because a call can be lost or repeated
    - `runs_in`: the process that runs the handler for WebSocket clients. A `session` frame has no
      handler: `chatserver.gateway.session.command_handler` handles it
    - `replies`: types of the reply; empty if the request has none
    - `cost`: tokens of `limits.requests`
    - `memory`: bytes to charge before the request is handled
    - `charge`: returns the bytes to charge for what the request has added to Redis, from the
      request and its reply
    - `is_protective`: the request protects its user. It is allowed when the user's memory budget is
      spent or Redis is full: what it stores is small, and the number of targets is limited
    - `is_needed_when_full`: a worker gets the request even if Redis is full, because it adds
      nothing. This is always so for protective requests
    - `is_bulk`: returns whether a request concerns so many users that workers run few of its kind
    - `http`: the HTTP route of the request
    """

    frame: type[Frame]
    handler: Handler[Frame] | None
    runs_in: Literal["session", "gateway", "worker"] = "worker"
    replies: tuple[type[ServerFrame], ...] = (Ok,)
    cost: Cost = BASE
    memory: Memory | None = None
    charge: Callable[[Frame, Any], int] | None = None
    is_protective: bool = False
    is_needed_when_full: bool = False
    is_bulk: Callable[[Frame], bool] | None = None
    http: Route | None = None

    @property
    def name(self) -> str:
        """The `type` of the frame."""
        return str(self.frame.__struct_config__.tag)

    def compute_cost(self, frame: Frame) -> int:
        """Return the cost of a frame in tokens."""
        cost = self.cost if isinstance(self.cost, int) else self.cost(frame)
        return min(cost, REQUEST_COST_MAX)

    def compute_memory(self, frame: Frame, size_bytes: int) -> int:
        """Return the bytes to charge for a frame or body of this size; 0 if it stores nothing."""
        if self.memory is None:
            return 0
        if isinstance(self.memory, int):
            return self.memory + size_bytes
        return self.memory(frame, size_bytes)

    def __post_init__(self) -> None:
        if self.runs_in != "worker" and (self.is_needed_when_full or self.is_bulk):
            raise ValueError(f"{self.name}: is_needed_when_full, is_bulk: only workers use them")


@dataclasses.dataclass(frozen=True)
class ServerPush:
    """A frame that the server sends without a request."""

    frame: type[ServerFrame]


class Properties(TypedDict, total=False):
    """The fields of `Operation` except the frame, the handler and the replies."""

    runs_in: Literal["gateway", "worker"]
    cost: Cost
    memory: Memory
    charge: Callable[[Any, Any], int]
    is_protective: bool
    is_needed_when_full: bool
    is_bulk: Callable[[Any], bool]
    http: Route


def request(
    frame: type[Frame],
    *,
    reply: type[ServerFrame] | tuple[type[ServerFrame], ...] = Ok,
    **properties: Unpack[Properties],
) -> Callable[[Handler[Frame]], Operation[Frame]]:
    """Declare the request of the decorated handler; `properties`: see `Operation`."""
    replies = reply if isinstance(reply, tuple) else (reply,)

    def declare(handler: Handler[Frame]) -> Operation[Frame]:
        return Operation(frame=frame, handler=handler, replies=replies, **properties)

    return declare


def declare_session_frame(
    frame: type[Frame], *replies: type[ServerFrame], cost: Cost = BASE
) -> Operation[Frame]:
    """Declare a frame that the session itself handles."""
    return Operation(frame=frame, handler=None, runs_in="session", replies=replies, cost=cost)
