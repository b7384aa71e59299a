"""Validation of query parameters: unknown parameters are rejected, as in request bodies."""

from __future__ import annotations

import functools
from typing import Any

from litestar import Request
from litestar.handlers import BaseRouteHandler
from litestar.params import QueryParameter

from chatserver.errors import BadRequest

PREFIX = "/v1/"  # path prefix of API routes; links to web pages may have any query parameters


def check_query(request: Request[Any, Any, Any]) -> None:
    """Check that a request has only query parameters that its route defines.

    Raises:
        BadRequest: a parameter is unknown; the message lists the known ones.
    """
    if not request.url.path.startswith(PREFIX):
        return
    query_names = list_query_names(request.route_handler)
    for name in request.query_params:
        if name not in query_names:
            names = ", ".join(sorted(query_names)) or "none"
            raise BadRequest(f"{name[:50]}: unknown query parameter; known: {names}")


@functools.cache
def list_query_names(handler: BaseRouteHandler) -> frozenset[str]:
    """Return the names of the query parameters that a route and its dependencies accept."""
    dependencies = handler.resolve_dependencies()
    signatures = [handler.parsed_fn_signature]
    names: set[str] = set()
    for signature in signatures:  # grows by the signatures of the dependencies in use
        for name, param in signature.parameters.items():
            if name in dependencies:
                signatures.append(dependencies[name].parsed_fn_signature)
            elif isinstance(param.kwarg_definition, QueryParameter):
                names.add(param.kwarg_definition.name or name)
    return frozenset(names)
