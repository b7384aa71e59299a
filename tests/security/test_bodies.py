"""Fields of request and response bodies (API3, rows 12, 13 and 28), checked on their types."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec import inspect as mi

from chatserver.api.app import create_litestar
from chatserver.config import Auth, Settings
from chatserver.protocol import frames
from chatserver.requests.registry import list_operations
from tests.support.apiparts import open_offline_container

Bodies = dict[str, type[msgspec.Struct]]
DOCUMENT = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text("utf-8"))
# Browsers send more fields in a subscription than the server reads.
WITH_UNKNOWN_FIELDS = {"ChatNotifications", "NewPushSubscription", "PushKeys"}
# Bounded by a parser instead of their type, in characters and bytes. Row 28 of docs/security.md
# names its test. The whole body has at most 64 KB.
BOUNDED_BY_PARSER = {
    "auth",
    "body",
    "emoji",
    "endpoint",
    "name",
    "p256dh",
    "token",
    "tools",
    "topic",
    "until",
}
# Names of fields that no response to other users may have.
PRIVATE = {
    "api_key", "digest", "email", "generation", "hash", "hash_", "ip", "passphrase",
    "password", "refresh_token", "secret", "seed", "token",
}  # fmt: skip
# A login response has tokens.
WITH_TOKENS = {"Granted", "Login"}


@pytest.fixture(scope="module")
def bodies() -> Bodies:
    """The type of each request body, by its name."""
    return asyncio.run(find_bodies())


async def find_bodies() -> Bodies:
    """Return the request body types of an API with default settings."""
    settings = Settings(auth=Auth.model_validate({"secret": "0" * 32}))
    async with open_offline_container(settings) as container:
        app = create_litestar(settings, container.clock, container)
        found: Bodies = {}
        for route in app.routes:
            for handler in getattr(route, "route_handlers", ()):
                data = handler.parsed_fn_signature.parameters.get("data")
                if data is not None:
                    for each in get_args(data.annotation) or (data.annotation,):
                        if isinstance(each, type) and issubclass(each, msgspec.Struct):
                            found[each.__name__] = each
    return found


def structs_in(cls: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """Return the type and the struct types of its fields."""
    info = mi.type_info(cls)
    assert isinstance(info, mi.StructType)
    inner = [
        part.cls
        for field in info.fields
        for part in (field.type.types if isinstance(field.type, mi.UnionType) else [field.type])
        if isinstance(part, mi.StructType)
    ]
    return [cls, *(each for one in inner for each in structs_in(one))]


def test_api3_body_types_forbid_unknown_fields(bodies: Bodies) -> None:
    """A misspelled field, or one such as `sender` or `role`, is refused."""
    assert len(bodies) > 20
    for body in bodies.values():
        for cls in structs_in(body):
            config = cls.__struct_config__
            assert config.forbid_unknown_fields or cls.__name__ in WITH_UNKNOWN_FIELDS, cls.__name__


def test_api3_clients_cannot_set_server_assigned_fields(bodies: Bodies) -> None:
    """No body or frame has a field that the commit or the session determines."""
    assigned = {"sender", "from", "mid", "cs", "edited", "is_admin", "scopes", "rev", "created"}
    frames_ = [cls for cls in list_operations() if cls is not frames.Hello]
    for cls in (*bodies.values(), *frames_):
        assert assigned.isdisjoint(cls.__struct_encode_fields__), cls.__name__


def test_api3_responses_have_no_private_fields() -> None:
    """No response has addresses, hashes, tokens or keys, except login responses."""
    for name, schema in DOCUMENT["components"]["schemas"].items():
        if name not in WITH_TOKENS and not _is_in_request(name):
            assert PRIVATE.isdisjoint(schema.get("properties", {})), name


def _is_in_request(name: str) -> bool:
    """Return whether a schema belongs to a request."""
    requests: set[str] = set()
    for item in DOCUMENT["paths"].values():
        for operation in item.values():
            if isinstance(operation, dict):
                _collect(operation.get("requestBody", {}), requests)
    return name in requests


def _collect(schema: Any, found: set[str]) -> None:
    for each in _references(schema):
        if each not in found:
            found.add(each)
            _collect(DOCUMENT["components"]["schemas"][each], found)


def _references(schema: Any) -> list[str]:
    if isinstance(schema, dict):
        own = [schema["$ref"].rpartition("/")[2]] if "$ref" in schema else []
        return own + [each for value in schema.values() for each in _references(value)]
    if isinstance(schema, list):
        return [each for value in schema for each in _references(value)]
    return []


def test_api3_public_user_fields_are_exactly_as_listed() -> None:
    """A new field about a user must be added here on purpose."""
    fields = {
        name: set(schema.get("properties", {}))
        for name, schema in DOCUMENT["components"]["schemas"].items()
    }

    assert fields["Member"] == {"user", "role", "joined"}
    assert fields["Marks"] == {"user", "read", "received"}
    assert fields["Presence"] == {"user", "state", "last_seen"}
    assert fields["BlockedUser"] == {"user", "since"}
    assert fields["BannedUser"] == {"user", "by", "since"}
    assert fields["Person"] == {"user", "name", "about"}
    assert fields["Me"] == fields["Person"] | {"is_admin", "discoverable"}
    assert fields["Problem"] == {
        "type", "title", "status", "detail", "code", "temporary", "retry_after_ms",
    }  # fmt: skip


def unbounded_in(cls: type[msgspec.Struct]) -> set[str]:
    """Return the fields of a type whose values have no maximum size."""
    info = mi.type_info(cls)
    assert isinstance(info, mi.StructType)
    return {
        field.encode_name
        for field in info.fields
        for part in (field.type.types if isinstance(field.type, mi.UnionType) else [field.type])
        if not is_bounded(part)
    }


def is_bounded(info: mi.Type) -> bool:
    """Return whether values of the type have a maximum size."""
    match info:
        case (
            mi.IntType(ge=int(), le=int())
            | mi.BoolType()
            | mi.FloatType()
            | mi.NoneType()
            | mi.LiteralType()
        ):
            return True
        case mi.StrType(pattern=str()) | mi.StrType(max_length=int()):
            return True
        case mi.DictType(key_type=key, value_type=item, max_length=int()):
            return is_bounded(key) and is_bounded(item)
        case mi.ListType(item_type=item, max_length=int()):
            return is_bounded(item)
        case mi.StructType():
            return True  # checked separately
    return False


def test_row_28_every_field_of_a_body_has_a_bound(bodies: Bodies) -> None:
    """Each field is bounded by its type or by a tested parser. So are lists (row 12)."""
    found = {
        name for body in bodies.values() for cls in structs_in(body) for name in unbounded_in(cls)
    }

    assert found <= BOUNDED_BY_PARSER, found - BOUNDED_BY_PARSER


def test_row_13_no_body_field_accepts_any_type(bodies: Bodies) -> None:
    """`{"$gt": ""}` instead of a text is a type error, because no field has type Any or Raw."""
    for body in bodies.values():
        for cls in structs_in(body):
            info = mi.type_info(cls)
            assert isinstance(info, mi.StructType)
            for field in info.fields:
                assert not isinstance(field.type, mi.AnyType | mi.RawType), (cls, field.name)
