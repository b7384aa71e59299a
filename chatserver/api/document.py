"""The OpenAPI document: made from the routes and their types, with what their rules say.

What the framework makes of handlers is the raw material. Added here, from the same sources that
decide at run time: who may call (`x-rule`, security), the header of routes that create, and that
every refusal is a problem document.

``python -m chatserver.api.document > docs/openapi.json`` writes the committed file.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
import sys
from typing import Any

import msgspec
from litestar import Litestar, Request, Router, get
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme
from pydantic import SecretStr

import chatserver
from chatserver.api import idempotency, problems
from chatserver.api.bodies import takes_empty_body
from chatserver.api.security import ANYONE, CHAT_AS, Rule
from chatserver.config import Auth, Settings
from chatserver.domain.clock import SystemClock
from chatserver.hot.client import make_hot
from chatserver.protocol.codes import CODES

PATH = "/v1/openapi.json"
BEARER = "bearer"
_PROBLEM = {"$ref": "#/components/schemas/Problem"}
_CODES = ", ".join(f"`{code}` ({meaning.http_status})" for code, meaning in CODES.items())
_ABOUT = f"""Chats, accounts, attachments and push over HTTP; live events come by WebSocket.

Log in with `Authorization: Bearer` and a user's token, or an API key of the host application.
Whatever is refused answers a problem document (RFC 9457). Its `code` is one of {_CODES}; what
is `temporary` may be tried again after `retry_after_ms`. What does not exist and what is not yours
answer the same. Lists are pages: `next` is the `cursor` of the next one."""


class _Unrouted(Router):
    """Takes the framework's own routes for documents and leaves them out: ours is below."""

    def register(self, value: Any) -> list[Any]:
        """Register nothing."""
        return []


def document_config() -> OpenAPIConfig:
    """Return what the framework is to know of the document."""
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
    """Return the document of all routes that are in it."""
    document: dict[str, Any] = msgspec.to_builtins(app.openapi_schema.to_schema())
    document["components"]["schemas"] |= _schema_of_problem()
    for route in app.routes:
        item = document["paths"].get(route.path_format, {})
        for handler in getattr(route, "route_handlers", ()):
            for method in getattr(handler, "http_methods", ()):
                operation = item.get(method.lower())
                if operation is not None:
                    name = handler.fn.__name__
                    operation |= {"operationId": name, "tags": [_tag_of(route.path_format)]}
                    operation["summary"] = name.replace("_", " ").capitalize()
                    _add_rule(operation, handler.opt["rule"])
                    if "requestBody" in operation:
                        operation["requestBody"]["required"] = not takes_empty_body(handler)
                    _add_idempotency(operation, handler.opt)
                    _add_problems(operation)
    return document


def _schema_of_problem() -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components(
        [problems.Problem], ref_template="#/components/schemas/{name}"
    )
    return schemas


def _tag_of(path: str) -> str:
    """Return under which noun a path is to be found: its first word behind the version."""
    words = [word for word in path.split("/")[1:] if not word.startswith("{")]
    return words[1] if words[0] == "v1" and len(words) > 1 else "health"


def _add_rule(operation: dict[str, Any], rule: Rule) -> None:
    operation["x-rule"] = str(rule)
    operation["security"] = [] if rule.is_open else [{BEARER: []}]
    if rule.scope is not None:
        about = "with an API key that has the scope act_as: on whose behalf"
        _add_header(operation, CHAT_AS, about, {"type": "string"})


def _add_idempotency(operation: dict[str, Any], opt: dict[str, Any]) -> None:
    if opt.get("creates") or opt.get("takes_key"):
        about = "the same key within 24 hours gets the same answer, and nothing is done twice"
        schema = {"type": "string", "minLength": 1, "maxLength": idempotency.KEY_CHARS_MAX}
        _add_header(operation, idempotency.HEADER, about, schema)


def _add_header(operation: dict[str, Any], name: str, about: str, schema: dict[str, Any]) -> None:
    header = {"name": name, "in": "header", "required": False, "description": about}
    operation.setdefault("parameters", []).append({**header, "schema": schema})


def _add_problems(operation: dict[str, Any]) -> None:
    """Say what refusals look like, in place of what the framework would answer by itself."""
    answers = operation["responses"]
    for status in [status for status in answers if status >= "400"]:
        del answers[status]
    answers["default"] = {
        "description": "a refusal, as a problem document",
        "content": {problems.MEDIA_TYPE: {"schema": _PROBLEM}},
    }


def encode_document(document: dict[str, Any]) -> bytes:
    """Return it as it is committed: sorted and indented, so that a difference can be read."""
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=1) + b"\n"


def document_route() -> HTTPRouteHandler:
    """Return ``GET /v1/openapi.json``."""

    @functools.cache
    def encode(app: Litestar) -> bytes:
        return encode_document(make_document(app))

    @get(PATH, media_type="application/json", include_in_schema=False, opt={"rule": ANYONE})
    async def get_document(request: Request[Any, Any, Any]) -> bytes:
        """Return the OpenAPI document of this API."""
        return encode(request.app)

    return get_document


async def build_document() -> bytes:
    """Return the document of an API with default settings, without any store."""
    # Imported here: it makes the routes, of which the one above is one.
    from chatserver.api.app import create_litestar
    from chatserver.api.parts import open_api_parts

    settings = Settings(auth=Auth(secret=SecretStr(secrets.token_hex())))
    async with open_api_parts(settings, SystemClock(), make_hot(settings.redis)) as parts:
        return encode_document(make_document(create_litestar(settings, parts.clock, parts)))


def main() -> None:
    """Write the document to standard output."""
    sys.stdout.write(asyncio.run(build_document()).decode())


if __name__ == "__main__":
    main()
