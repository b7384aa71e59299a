"""Query parameters: what a route does not know is refused, as it is in bodies."""

from __future__ import annotations

import functools
from typing import Any

from litestar import Request
from litestar.handlers import BaseRouteHandler
from litestar.params import QueryParameter

from chatserver.errors import BadRequest

PREFIX = "/v1/"  # of the API; pages may be linked to with whatever others add


def check_query(request: Request[Any, Any, Any]) -> None:
    """See that a request asks for nothing that its route would pass over in silence.

    Raises:
        BadRequest: it does; names the first such parameter, and those that there are.
    """
    if not request.url.path.startswith(PREFIX):
        return
    known = query_names(request.route_handler)
    for name in request.query_params:
        if name not in known:
            there_are = ", ".join(sorted(known)) or "none"
            raise BadRequest(f"{name[:50]}: no such query parameter; there are: {there_are}")


@functools.cache
def query_names(handler: BaseRouteHandler) -> frozenset[str]:
    """Return the query parameters that a route takes."""
    return frozenset(
        param.kwarg_definition.name or name
        for name, param in handler.parsed_fn_signature.parameters.items()
        if isinstance(param.kwarg_definition, QueryParameter)
    )
