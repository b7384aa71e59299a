"""OpenAPI document, generated from the routes, their types and their rules.

The framework generates a document from the handlers. This module adds the allowed callers
(`x-rule`, security), the headers of each route, and every error status with its problem details.
`list_error_statuses` derives the statuses that depend on a route's rule, path and body. A handler
declares the others: ``opt={"errors": (409,)}``.

``python -m chatserver.api.openapi_file > docs/openapi.json`` writes the committed file.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Litestar, Request, Response, Router, get
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

import chatserver
from chatserver.api import idempotency, problems
from chatserver.api.authorization import ANYONE, CHAT_AS, Rule
from chatserver.api.request_bodies import accepts_empty_body
from chatserver.api.routes.static_files import StaticFile
from chatserver.protocol.error_codes import CODES

PATH = "/v1/openapi.json"
_PAGE_NAME = re.compile(r'("|/)Page_[\w.]*?(\w+)_"')
_DOCUMENT = "openapi_document"  # name in the application's state
BEARER = "bearer"
_PROBLEM = {"$ref": "#/components/schemas/Problem"}
_TIMEOUT = HTTPStatus.REQUEST_TIMEOUT
_CODES = ", ".join(f"`{code}` ({meaning.http_status})" for code, meaning in CODES.items())
_ABOUT = f"""Chats, accounts, attachments and push over HTTP; live events use WebSocket.

Authenticate with `Authorization: Bearer` and a user's token or the host application's API key.
Errors are problem details (RFC 9457). `code` is one of {_CODES};
if `temporary` is true, retry after `retry_after_ms`. A resource that the caller may not see is
reported as missing. Lists are paginated: `next` is the `cursor` of
the next page."""


class _Unrouted(Router):
    """Discards the framework's routes for the OpenAPI document; `document_route` replaces them."""

    def register(self, value: Any) -> list[Any]:
        return []


def document_config() -> OpenAPIConfig:
    """Return the framework's configuration for the OpenAPI document."""
    return OpenAPIConfig(
        title="chatserver",
        version=chatserver.__version__,
        description=_ABOUT,
        path="/v1",
        use_handler_docstrings=True,
        render_plugins=[JsonRenderPlugin(path="/openapi.json")],
        openapi_router=_Unrouted("/v1", route_handlers=[]),
        components=Components(
            security_schemes={
                BEARER: SecurityScheme(
                    type="http",
                    scheme=BEARER,
                    description="a user's token, or an API key of the host application",
                )
            }
        ),
    )


def make_document(app: Litestar) -> dict[str, Any]:
    """Return the OpenAPI document, without routes that are excluded from the schema."""
    document: dict[str, Any] = msgspec.to_builtins(app.openapi_schema.to_schema())
    document["components"]["schemas"] |= _build_problem_schema()
    for route in app.routes:
        item = document["paths"].get(route.path_format, {})
        for handler in getattr(route, "route_handlers", ()):
            for method in getattr(handler, "http_methods", ()):
                operation = item.get(method.lower())
                if operation is not None:
                    name = handler.fn.__name__
                    operation |= {"operationId": name, "tags": [_get_tag(route.path_format)]}
                    operation["summary"] = name.replace("_", " ").capitalize()
                    _add_rule(operation, handler.opt["rule"])
                    if "requestBody" in operation:
                        operation["requestBody"]["required"] = not accepts_empty_body(handler)
                    _add_idempotency(operation, handler.opt)
                    _add_errors(operation, list_error_statuses(route.path_format, handler))
    document["components"]["responses"] = {
        _get_error_name(status): _build_error(status)
        for status in sorted({_TIMEOUT, *(meaning.http_status for meaning in CODES.values())})
    }
    return _name_pages(document)


def _name_pages(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with pages named by their items; the framework adds module paths."""
    count = len(document["components"]["schemas"])
    text = msgspec.json.encode(document).decode()
    renamed: dict[str, Any] = msgspec.json.decode(_PAGE_NAME.sub(r'\1\2Page"', text))
    if len(renamed["components"]["schemas"]) != count:
        raise ValueError("two pages have items of the same name")
    return renamed


def list_error_statuses(path: str, handler: HTTPRouteHandler) -> list[int]:
    """Return the statuses of all errors that a route may return."""
    opt, rule = handler.opt, handler.opt["rule"]
    statuses = {500, 503, *opt.get("errors", ())}
    if not opt.get("is_probe"):
        statuses |= {403, 429}  # the tenant may be blocked, even if anyone may call
    if path.startswith("/v1/"):
        statuses.add(400)
    if not rule.is_open:
        statuses.add(401)
    if "{" in path or rule.scope is not None:  # the user in X-Chat-As may be absent
        statuses.add(404)
    if handler.parsed_data_field is not None:
        statuses |= {_TIMEOUT, 413}
    if opt.get("creates") or opt.get("accepts_key") or _has_ref(handler):
        statuses.add(409)
    return sorted(statuses)


def _has_ref(handler: HTTPRouteHandler) -> bool:
    """Return whether a route has a `ref`, which may belong to another request."""
    body = handler.parsed_data_field
    names = () if body is None else body.annotation.__struct_fields__
    return "ref" in names or "ref" in handler.parsed_fn_signature.parameters


def _build_problem_schema() -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components(
        [problems.Problem], ref_template="#/components/schemas/{name}"
    )
    return schemas


def _get_tag(path: str) -> str:
    """Return the tag of a path: its first word after the version."""
    words = [word for word in path.split("/")[1:] if not word.startswith("{")]
    return words[1] if words[0] == "v1" and len(words) > 1 else "health"


def _add_rule(operation: dict[str, Any], rule: Rule) -> None:
    operation["x-rule"] = str(rule)
    operation["security"] = [] if rule.is_open else [{BEARER: []}]
    if rule.scope is not None:
        description = "user to act as; needs an API key with the scope act_as"
        _add_header(operation, CHAT_AS, description, {"type": "string"})


def _add_idempotency(operation: dict[str, Any], opt: dict[str, Any]) -> None:
    if opt.get("creates") or opt.get("accepts_key"):
        description = (
            "a retry with the same key within 24 hours has no effect and gets the same response"
        )
        schema = {"type": "string", "minLength": 1, "maxLength": idempotency.KEY_CHARS_MAX}
        _add_header(operation, idempotency.HEADER, description, schema)


def _add_header(
    operation: dict[str, Any], name: str, description: str, schema: dict[str, Any]
) -> None:
    header = {"name": name, "in": "header", "required": False, "description": description}
    operation.setdefault("parameters", []).append({**header, "schema": schema})


def _add_errors(operation: dict[str, Any], statuses: Sequence[int]) -> None:
    responses = operation["responses"]
    for status in [status for status in responses if status >= "400"]:
        del responses[status]
    for status in statuses:
        responses[str(status)] = {"$ref": f"#/components/responses/{_get_error_name(status)}"}


def _get_error_name(status: int) -> str:
    return f"Error{status}"


def _build_error(status: int) -> dict[str, Any]:
    codes = [code for code, meaning in CODES.items() if meaning.http_status == status]
    names = " or ".join(f"`{code}`" for code in codes or ["bad_request"])
    return {
        "description": f"{HTTPStatus(status).phrase}: problem details with the code {names}",
        "content": {problems.MEDIA_TYPE: {"schema": _PROBLEM}},
    }


def encode_document(document: dict[str, Any]) -> bytes:
    """Return the committed form of the document: sorted and indented for readable diffs."""
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=1) + b"\n"


async def prepare_document(app: Litestar) -> None:
    """Encode the document when the server starts, because that takes hundreds of milliseconds."""
    find_document(app)


def find_document(app: Litestar) -> StaticFile:
    """Return the encoded document of an application."""
    file: StaticFile | None = app.state.get(_DOCUMENT)
    if file is None:
        content = encode_document(make_document(app))
        contents = {"": content, "gzip": gzip.compress(content, mtime=0)}
        file = app.state[_DOCUMENT] = StaticFile("openapi.json", contents)
    return file


def document_route() -> HTTPRouteHandler:
    @get(PATH, include_in_schema=False, opt={"rule": ANYONE})
    async def get_document(request: Request[Any, Any, Any]) -> Response[bytes]:
        """Return the OpenAPI document of this API."""
        return find_document(request.app).respond(request)

    return get_document
