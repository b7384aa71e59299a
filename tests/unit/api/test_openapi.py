"""The OpenAPI document matches the routes, and the committed file is current."""

from __future__ import annotations

import asyncio
import typing
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from chatserver.api.app import create_litestar
from chatserver.api.openapi import encode_document, make_document
from chatserver.config import Auth, Settings
from chatserver.protocol.error_codes import CODES
from chatserver.requests.registry import list_operations
from tests.support.apiparts import open_offline_container

COMMITTED = Path(__file__).parents[3] / "docs" / "openapi.json"
CHAT = "/v1/chats/{chat}"
MESSAGE, MEMBER, BAN = (
    f"{CHAT}/messages/{{seq}}",
    f"{CHAT}/members/{{user}}",
    f"{CHAT}/bans/{{user}}",
)
# The HTTP operation for each frame; None: the frame is about live updates or the socket itself.
OPERATION_OF: dict[str, tuple[str, str] | None] = {
    "hello": None, "auth": None, "sync": None, "typing": None, "state": None, "unwatch": None,
    "stop": None, "join_turn": None,
    "watch": ("GET", "/v1/presence"), "search": ("GET", "/v1/search"),
    "send": ("POST", f"{CHAT}/messages"), "history": ("GET", f"{CHAT}/messages"),
    "edit": ("PATCH", MESSAGE), "delete": ("DELETE", MESSAGE),
    "react": ("PUT", f"{MESSAGE}/reaction"), "report": ("PUT", f"{MESSAGE}/report"),
    "mark": ("PUT", f"{CHAT}/marks"),
    "chats": ("GET", "/v1/chats"), "create_chat": ("POST", "/v1/chats"),
    "open_direct": ("PUT", "/v1/direct-chats/{user}"), "update_chat": ("PATCH", CHAT),
    "invite": ("POST", f"{CHAT}/members"), "remove": ("DELETE", MEMBER),
    "set_role": ("PATCH", MEMBER), "mute_member": ("PUT", f"{MEMBER}/mute"),
    "join": ("POST", f"{CHAT}/join"), "leave": ("POST", f"{CHAT}/leave"),
    "invitations": ("GET", "/v1/invitations"),
    "accept_invitation": ("POST", "/v1/invitations/{chat}/accept"),
    "decline_invitation": ("DELETE", "/v1/invitations/{chat}"),
    "ban_member": ("PUT", BAN), "unban_member": ("DELETE", BAN),
    "block": ("PUT", "/v1/me/blocks/{user}"), "unblock": ("DELETE", "/v1/me/blocks/{user}"),
    "blocks": ("GET", "/v1/me/blocks"),
    "companions": ("GET", "/v1/companions"),
    "create_session": ("POST", "/v1/companions/{companion}/session"),
    "get_session": ("GET", "/v1/companions/{companion}/session"),
    "renew_session": ("POST", "/v1/companions/{companion}/session/renewal"),
    "delete_session": ("DELETE", "/v1/companions/{companion}/session"),
    "update_session": ("PUT", "/v1/companion-sessions/{chat}/version"),
    "sessions": ("GET", "/v1/companion-sessions"),
}  # fmt: skip
# Responses whose lists are bounded and therefore not paged, such as items requested by name.
BOUNDED = {
    "/v1/admin/overview",
    "/v1/admin/audit",
    "/v1/admin/cost",
    "/v1/me/companions/{companion}/memory",
    "/v1/me/pinned-chats",
    "/v1/presence",
    "/v1/users",
    "/v1/user-search",
    CHAT,
    MESSAGE,
    f"{CHAT}/messages/by-mid/{{mid}}",
    f"{CHAT}/messages/around/{{seq}}",
    "/v1/erasures/{receipt}",
    "/v1/client-config",
}
METHODS = {"get", "post", "put", "patch", "delete"}


class Api(NamedTuple):
    """The document, its operations by method and path, and the routes that are served."""

    document: dict[str, Any]
    operations: dict[tuple[str, str], dict[str, Any]]
    served: set[tuple[str, str]]
    bodies: dict[tuple[str, str], Any]  # the type of each operation's body


async def create_api() -> Api:
    """Create the routes and the document of an API with default settings."""
    settings = Settings(auth=Auth.model_validate({"secret": "0" * 32}))
    async with open_offline_container(settings) as container:
        app = create_litestar(settings, container.clock, container)
        served = {
            (method, route.path_format)
            for route in app.routes
            for handler in getattr(route, "route_handlers", ())
            for method in handler.http_methods
            if method != "OPTIONS"
        }
        bodies = {
            (method, route.path_format): handler.parsed_data_field.annotation
            for route in app.routes
            for handler in getattr(route, "route_handlers", ())
            for method in handler.http_methods
            if handler.parsed_data_field is not None
        }
        document = make_document(app)
    operations = {
        (method.upper(), path): operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method in METHODS
    }
    return Api(document, operations, served, bodies)


@pytest.fixture(scope="module")
def api() -> Api:
    """One document for all tests, because it is slow to create."""
    return asyncio.run(create_api())


def test_committed_document_is_current(api: Api) -> None:
    """A change of a route or of its types also changes the document.

    If this fails, run `make docs`.
    """
    assert COMMITTED.read_bytes() == encode_document(api.document)


def test_document_lists_every_route_of_the_api(api: Api) -> None:
    """Only the web client's files and the document itself are not listed."""
    hidden = {path for _, path in api.served - set(api.operations)}

    assert set(api.operations) <= api.served
    assert {path for path in hidden if path.startswith("/v1")} == {"/v1/openapi.json"}


def test_document_has_authorization_and_problem_of_each_operation(api: Api) -> None:
    """A reader knows which token to send and what an error looks like."""
    for name, operation in api.operations.items():
        is_open = operation["x-rule"] == "anyone"
        errors = {
            status: response
            for status, response in operation["responses"].items()
            if not status.startswith(("2", "3"))
        }
        assert operation["security"] == ([] if is_open else [{"bearer": []}]), name
        assert ("401" in errors) or is_open, name
        assert {"500", "503"} <= errors.keys() and "default" not in errors, name
        for status, response in errors.items():
            assert response == {"$ref": f"#/components/responses/Error{status}"}, name
        assert operation["description"], name


def test_document_names_each_operation_once(api: Api) -> None:
    """Generated clients have a function for each of these names."""
    names = Counter(operation["operationId"] for operation in api.operations.values())

    assert [name for name, count in names.items() if count > 1] == []


def test_request_bodies_reject_unknown_fields(api: Api) -> None:
    """A misspelled field is a 400 that names it, on every route and in nested objects."""
    with_body = {name for name, each in api.operations.items() if "requestBody" in each}
    assert with_body and with_body == set(api.bodies)

    lenient = {
        f"{method} {path}: {struct.__name__}"
        for (method, path), body in api.bodies.items()
        for struct in structs_of(body)
        if not struct.__struct_config__.forbid_unknown_fields
    }

    assert lenient == set()


def structs_of(root: Any) -> set[Any]:
    """Return all structs in a type."""
    found: set[Any] = set()
    waiting = [root]
    while waiting:
        each = waiting.pop()
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            if each not in found:
                found.add(each)
                waiting += [field.type for field in msgspec.structs.fields(each)]
        else:
            waiting += typing.get_args(each)
    return found


def test_body_is_required_if_a_field_is_required(api: Api) -> None:
    """An empty body means an empty object if all fields are optional."""
    for name, body in api.bodies.items():
        is_required = any(field.required for field in msgspec.structs.fields(body))
        assert api.operations[name]["requestBody"]["required"] is is_required, name


def test_create_operation_accepts_an_idempotency_key(api: Api) -> None:
    """Operations that return 201, and the login, can be repeated without a second effect."""
    for (method, path), operation in api.operations.items():
        headers = {each["name"] for each in operation.get("parameters", ())}
        if method == "POST" and ("201" in operation["responses"] or path == "/v1/auth/login"):
            assert "Idempotency-Key" in headers, path


def test_list_operation_is_paged(api: Api) -> None:
    """Every operation that returns a list is paged; history has its own cursors."""
    for (method, path), operation in api.operations.items():
        names = {each["name"] for each in operation.get("parameters", ())}
        fields = fields_of(api, operation["responses"].get("200", {}))
        lists = {name for name, field in fields.items() if field.get("type") == "array"}
        if method == "GET" and lists and path not in BOUNDED:
            assert names >= {"limit", "cursor"} or names >= {"limit", "before", "after"}, path
            assert {"next", "more"} & fields.keys(), path


def fields_of(api: Api, response: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a response's JSON object."""
    schema = response.get("content", {}).get("application/json", {}).get("schema", {})
    named = api.document["components"]["schemas"].get(schema.get("$ref", "").rpartition("/")[2])
    fields: dict[str, Any] = (named or schema).get("properties", {})
    return fields


def test_each_frame_has_an_http_operation_or_needs_none(api: Api) -> None:
    """HTTP offers everything that the WebSocket does: a new frame without a row fails."""
    tags = {frame.__struct_config__.tag for frame in list_operations()}

    assert set(OPERATION_OF) == tags
    assert {each for each in OPERATION_OF.values() if each} <= set(api.operations)


def test_schema_references_of_the_document_resolve(api: Api) -> None:
    """Each referenced type is described."""
    text = msgspec.json.encode(api.document).decode()
    named = {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}

    assert named <= set(api.document["components"]["schemas"])


def test_each_error_status_has_problem_details_and_its_codes(api: Api) -> None:
    """Every code of the protocol is under the status with which it is sent."""
    errors = api.document["components"]["responses"]
    for code, meaning in CODES.items():
        assert f"`{code}`" in errors[f"Error{meaning.http_status}"]["description"]
    for error in errors.values():
        schema = error["content"]["application/problem+json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/Problem"}
