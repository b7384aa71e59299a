"""Request bodies derived from the types of WebSocket frames.

A field added to a frame is also available over HTTP, with the same bounds. A body that contains the
frame's ``id``, or a field that is in the path, is rejected. ``ref`` is optional: by default it is
derived from the `Idempotency-Key`, or generated if the request has no such key.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Request
from litestar.handlers import BaseRouteHandler
from litestar.params import PathParameter, QueryParameter
from msgspec import NODEFAULT
from msgspec.structs import fields

from chatserver.api.idempotency import digest, read_key
from chatserver.domain.ids import ID_PATTERN, new_id
from chatserver.protocol import frames

F = TypeVar("F", bound=msgspec.Struct)

# Parameter types for handlers.
PathId = Annotated[str, PathParameter(pattern=ID_PATTERN)]
PathSeq = Annotated[int, PathParameter(ge=1, le=frames.INT_MAX)]
RefQuery = Annotated[str | None, QueryParameter(pattern=ID_PATTERN, required=False)]


def build_body_type(
    name: str, frame: type[msgspec.Struct], *from_path: str
) -> type[msgspec.Struct]:
    """Return the request body type for a frame: without `id` and the fields in `from_path`."""
    own: list[Any] = []
    for field in fields(frame):
        if field.name == "id" or field.name in from_path:
            continue
        if field.name == "ref":
            own.append(("ref", frames.Id | None, None))
        elif field.default_factory is not NODEFAULT:
            own.append(
                (field.name, field.type, msgspec.field(default_factory=field.default_factory))
            )
        elif field.default is not NODEFAULT:
            own.append((field.name, field.type, field.default))
        else:
            own.append((field.name, field.type))
    return msgspec.defstruct(
        name,
        own,
        kw_only=True,
        frozen=True,
        forbid_unknown_fields=True,
        module=__name__,
        namespace={"__doc__": frame.__doc__},
    )


def build_frame(
    frame: type[F], body: msgspec.Struct, request: Request[Any, Any, Any], **from_path: Any
) -> F:
    """Return the WebSocket frame that is equivalent to a request."""
    values = {name: getattr(body, name) for name in body.__struct_fields__}
    if "ref" in values:
        values["ref"] = get_ref(values["ref"], request)
    return frame(id=0, **values, **from_path)


def get_ref(ref: str | None, request: Request[Any, Any, Any]) -> str:
    """Return `ref`, or else a `ref` derived from the idempotency key, or else a new `ref`."""
    if ref is not None:
        return ref
    key = read_key(request)
    return new_id() if key is None else f"k-{digest(key)}"


async def fill_empty_body(request: Request[Any, Any, Any]) -> None:
    """Replace an empty body with an empty JSON object if every field of the body is optional."""
    if accepts_empty_body(request.route_handler) and not await request.body():
        request._body = b"{}"  # the framework has no other way to replace a body


@functools.cache
def accepts_empty_body(handler: BaseRouteHandler) -> bool:
    """Return whether the route has a body whose fields are all optional."""
    data = handler.parsed_data_field
    return data is not None and not any(field.required for field in fields(data.annotation))
