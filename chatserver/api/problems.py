"""Problem details (RFC 9457): error responses, with the statuses in `protocol.error_codes`.

Fields: ``type`` (always about:blank), ``title``, ``status`` and ``detail`` as in RFC 9457;
``code``, ``temporary`` and ``retry_after_ms`` as in an `error` frame.
"""

from __future__ import annotations

import math
import re
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.types import ExceptionHandlersMap

from chatserver.errors import ChatError, ClientError, ConfigError, RateLimited, Unavailable
from chatserver.protocol import codec
from chatserver.protocol.error_codes import CODES

MEDIA_TYPE = "application/problem+json"
BODY = "data"  # name of the handler parameter that gets the request body
NOT_CONFIGURED_MS = 60_000  # retry delay if a setting, S3 bucket or AWS permission is missing
log = structlog.get_logger()

# Error codes for the HTTP statuses that the framework itself returns. Any other 4xx status gets
# `bad_request`.
_CODE_OF_STATUS = {
    meaning.http_status: code for code, meaning in CODES.items() if code != "overloaded"
}
_NOT_FOUND_PAGE = (Path(__file__).parent / "not_found_page" / "index.html").read_bytes()
# The framework's message for a missing parameter.
_MISSING = re.compile(r"^Missing required \w+ parameter '([^']+)' for path .*$")


class Problem(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Body of every error response."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    temporary: bool
    retry_after_ms: int | None = None


def _make_problem(
    status: int,
    code: str,
    detail: str,
    retry_after_ms: int | None,
    *,
    is_temporary: bool | None = None,
) -> Problem:
    return Problem(
        type="about:blank",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        code=code,
        temporary=CODES[code].is_temporary if is_temporary is None else is_temporary,
        retry_after_ms=retry_after_ms,
    )


def encode_problem(status: int, code: str, detail: str, retry_after_ms: int | None = None) -> bytes:
    """Return problem details as JSON, for responses sent outside the framework."""
    return codec.encode(_make_problem(status, code, detail, retry_after_ms))


def _make_response(
    status: int,
    code: str,
    detail: str,
    headers: dict[str, str],
    retry_after_ms: int | None,
    *,
    is_temporary: bool | None = None,
) -> Response[Any]:
    problem = _make_problem(status, code, detail, retry_after_ms, is_temporary=is_temporary)
    if retry_after_ms is not None:
        headers = {**headers, "Retry-After": str(math.ceil(retry_after_ms / 1000))}
    return Response(problem, status_code=status, media_type=MEDIA_TYPE, headers=headers)


def on_chat_error(request: Request[Any, Any, Any], error: ChatError) -> Response[Any]:
    """Respond to a `ChatError`. If the error is a bug, the response has no details."""
    if isinstance(error, ClientError | Unavailable):
        # Rate-limited requests are counted in metrics; they would flood the log.
        if not isinstance(error, RateLimited):
            level = log.info if isinstance(error, ClientError) else log.warning
            level("request.refused", path=request.url.path, code=error.code, reason=error.message)
        status = CODES[error.code].http_status
        headers = _make_challenge(request) if status == HTTPStatus.UNAUTHORIZED else {}
        wait_ms, is_temporary = error.retry_after_ms, error.temporary
        return _make_response(
            status, error.code, error.public_message, headers, wait_ms, is_temporary=is_temporary
        )
    if isinstance(error, ConfigError):
        return _on_missing_setting(request, error)
    return on_bug(request, error)


def _on_missing_setting(request: Request[Any, Any, Any], error: ConfigError) -> Response[Any]:
    """Respond with 503: an S3 bucket, AWS permission or setting is missing (see server log)."""
    log.error("request.not_configured", path=request.url.path, problems=error.problems)
    detail = "the server is not configured for this request; see the server log"
    return _make_response(503, Unavailable.code, detail, {}, NOT_CONFIGURED_MS)


def _make_challenge(request: Request[Any, Any, Any]) -> dict[str, str]:
    is_tried = "authorization" in request.headers
    return {"WWW-Authenticate": 'Bearer error="invalid_token"' if is_tried else "Bearer"}


def on_http_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[Any]:
    """Respond to a framework error: unknown path or method, or an invalid body."""
    status = error.status_code
    if status >= 500:
        return on_bug(request, error)
    headers = {name.title(): value for name, value in (error.headers or {}).items()}
    if status == HTTPStatus.NOT_FOUND and _is_page_request(request):
        return Response(_NOT_FOUND_PAGE, status_code=status, media_type="text/html")
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = _format_methods(request, headers.get("Allow", ""))
    code = _CODE_OF_STATUS.get(status, "bad_request")
    return _make_response(status, code, _format_detail(request, error), headers, None)


def _is_page_request(request: Request[Any, Any, Any]) -> bool:
    """Return whether a browser asks for a page; the API itself always responds with JSON."""
    is_api = request.url.path.startswith("/v1/")
    return not is_api and "text/html" in request.headers.get("accept", "")


def _format_methods(request: Request[Any, Any, Any], named: str) -> str:
    """Return the methods of an address: HEAD works wherever GET does, and OPTIONS nowhere.

    `named` are the methods that the framework names, or empty.
    """
    methods = {name.strip() for name in named.split(",")} if named else set()
    for route in request.app.routes if not named else ():
        if route.path_format == request.scope.get("path_template"):
            methods |= set(getattr(route, "methods", ()))
    if "GET" in methods:
        methods.add("HEAD")
    return ", ".join(sorted(methods - {"OPTIONS"}))


def on_deep_nesting(request: Request[Any, Any, Any], error: RecursionError) -> Response[Any]:
    """Respond to a body nested so deeply that the framework's JSON parser fails."""
    log.warning("request.nested_too_deeply", path=request.url.path)
    return _make_response(400, "bad_request", "body: nested too deeply", {}, None)


def on_bad_utf8(request: Request[Any, Any, Any], error: UnicodeDecodeError) -> Response[Any]:
    """Respond to a body that is not UTF-8, on which the framework's JSON parser fails."""
    log.warning("request.not_utf8", path=request.url.path)
    return _make_response(400, "bad_request", "body: not UTF-8", {}, None)


def on_bug(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """Respond to an unexpected error: the server log has the details, the response has none."""
    log.error("request.failed", path=request.url.path, exc_info=error)
    return _make_response(500, "internal", "internal server error; see the server log", {}, None)


def _format_detail(request: Request[Any, Any, Any], error: HTTPException) -> str:
    """Return the invalid fields if the framework reports them, otherwise the error message."""
    fields = error.extra if isinstance(error.extra, list) else []
    named = [
        _explain(request, field)
        for field in fields
        if isinstance(field, dict) and "message" in field
    ]
    return "; ".join(named) or _MISSING.sub(r"\1: is required", error.detail)


def _explain(request: Request[Any, Any, Any], field: dict[str, Any]) -> str:
    key, message = field.get("key"), str(field["message"])
    if key == BODY:  # clients do not know this Python name
        return (
            "body: a JSON body is required"
            if message == repr(BODY)
            else codec.format_validation_error(f"{message} - at `$.body`")
        )
    return (
        codec.format_validation_error(f"{message} - at `$.{_get_parameter_name(request, key)}`")
        if key
        else message
    )


def _get_parameter_name(request: Request[Any, Any, Any], parameter: str) -> str:
    """Return a handler parameter's name in requests, which may differ from its Python name."""
    handler = request.scope.get("route_handler")
    parameters = {} if handler is None else handler.parsed_fn_signature.parameters
    definition = parameters[parameter].kwarg_definition if parameter in parameters else None
    return getattr(definition, "name", None) or parameter


EXCEPTION_HANDLERS: ExceptionHandlersMap = {
    ChatError: on_chat_error,
    HTTPException: on_http_error,
    RecursionError: on_deep_nesting,
    UnicodeDecodeError: on_bad_utf8,
    Exception: on_bug,
}
