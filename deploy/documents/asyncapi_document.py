"""AsyncAPI 3.0 document for ``chat.v1``, generated from the frame types.

``python -m deploy.documents.asyncapi_document > docs/asyncapi.json`` updates the file, and a test
checks that it is current. In AsyncAPI terms the application is the server: it *receives* client
frames.
"""

from __future__ import annotations

import sys
from http import HTTPStatus
from typing import Any, get_type_hints

import msgspec

from chatserver.domain.text.emoji import EMOJI_CHARS_MAX
from chatserver.domain.text_validation import (
    BODY_BYTES_MAX,
    BODY_CHARS_MAX,
    NAME_CHARS_MAX,
    NOTE_CHARS_MAX,
)
from chatserver.protocol import frames
from chatserver.protocol.error_codes import CODES, Close
from chatserver.requests.registry import list_operations, list_pushes

OPERATIONS = list_operations()
CLIENT_FRAMES: tuple[type[msgspec.Struct], ...] = tuple(OPERATIONS)
_REPLIES = [reply for operation in OPERATIONS.values() for reply in operation.replies]
SERVER_FRAMES: tuple[type[msgspec.Struct], ...] = tuple(dict.fromkeys([*_REPLIES, *list_pushes()]))

_SCHEMAS = "#/components/schemas/"
_CHANNEL = "#/channels/chat"

# Length limits that text validation checks. The frame types do not declare them.
_TEXT_BOUNDS = {
    ("Send", "body"): {
        "minLength": 1,
        "maxLength": BODY_CHARS_MAX,
        "description": f"At most {BODY_BYTES_MAX} bytes of UTF-8.",
    },
    ("Edit", "body"): {
        "minLength": 1,
        "maxLength": BODY_CHARS_MAX,
        "description": f"At most {BODY_BYTES_MAX} bytes of UTF-8.",
    },
    ("React", "emoji"): {"maxLength": EMOJI_CHARS_MAX},
    ("CreateChat", "name"): {"minLength": 1, "maxLength": NAME_CHARS_MAX},
    ("UpdateChat", "name"): {"minLength": 1, "maxLength": NAME_CHARS_MAX},
    ("UpdateChat", "topic"): {"maxLength": NOTE_CHARS_MAX},
}

_CLOSES = {
    Close.SHUTDOWN: "The server process is stopping.",
    Close.SLOW: "The client reads too slowly.",
    Close.OVERLOADED: "A server limit is reached.",
    Close.NO_PONG: "A ping was not answered in time.",
    Close.REPLACED: "The same device connected again, or the session limit was exceeded.",
    Close.UNAUTHENTICATED: "The token is invalid or revoked, or no token arrived in time.",
    Close.BAD_PROTOCOL: "The peer does not speak the protocol.",
    Close.BANNED: "The user is banned; do not reconnect.",
    Close.TOO_MANY_SESSIONS: "The user has too many connections.",
    Close.BLOCKED: "The operator has blocked this deployment (tenant).",
}


def build_document() -> dict[str, Any]:
    """Build the AsyncAPI document as JSON-compatible objects."""
    frame_types = [*CLIENT_FRAMES, *SERVER_FRAMES]
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": f"chatserver {frames.SUBPROTOCOL}",
            "version": f"{frames.PROTOCOL_VERSION}.0.0",
            "description": (
                "Each WebSocket text message is one JSON object, with `type` as its first field."
                " Unknown fields are ignored. protocol.md has rules that a schema cannot express."
            ),
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {"gateway": {"host": "localhost:8081", "protocol": "ws"}},
        "channels": {
            "chat": {
                "address": "/",
                "description": (
                    f"A WebSocket with subprotocol `{frames.SUBPROTOCOL}`. With"
                    f" `{frames.PACKED_SUBPROTOCOL}`, the same objects are sent as MessagePack in"
                    " binary messages."
                ),
                "messages": {cls.__name__: _build_ref("messages", cls) for cls in frame_types},
                "bindings": {"ws": {"method": "GET", "bindingVersion": "0.1.0"}},
            }
        },
        "operations": {**_build_request_operations(), "push": _build_push_operations()},
        "components": {
            "messages": {cls.__name__: _build_message(cls) for cls in frame_types},
            "schemas": _build_schemas(frame_types),
        },
        "x-error-codes": _list_error_codes(),
        "x-close-codes": _close_codes(),
    }


def get_tag(cls: type[msgspec.Struct]) -> str:
    return str(cls.__struct_config__.tag)


def _build_ref(kind: str, cls: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": f"#/components/{kind}/{cls.__name__}"}


def _in_channel(cls: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": f"{_CHANNEL}/messages/{cls.__name__}"}


def _build_request_operations() -> dict[str, Any]:
    operations: dict[str, Any] = {}
    for cls in CLIENT_FRAMES:
        operation: dict[str, Any] = {
            "action": "receive",
            "channel": {"$ref": _CHANNEL},
            "summary": _get_summary(cls),
            "messages": [_in_channel(cls)],
        }
        if OPERATIONS[cls].replies:
            responses: list[type[msgspec.Struct]] = [*OPERATIONS[cls].replies, frames.Error]
            operation["reply"] = {
                "channel": {"$ref": _CHANNEL},
                "messages": [_in_channel(response) for response in responses],
            }
        operations[get_tag(cls)] = operation
    return operations


def _build_push_operations() -> dict[str, Any]:
    return {
        "action": "send",
        "channel": {"$ref": _CHANNEL},
        "summary": "Frames that the server sends without a request.",
        "messages": [_in_channel(cls) for cls in list_pushes()],
    }


def _build_message(cls: type[msgspec.Struct]) -> dict[str, Any]:
    return {
        "name": get_tag(cls),
        "summary": _get_summary(cls),
        "payload": _build_ref("schemas", cls),
    }


def _get_summary(cls: type[msgspec.Struct]) -> str:
    return " ".join((cls.__doc__ or "").split("\n\n")[0].split())


def _build_schemas(frame_types: list[Any]) -> dict[str, Any]:
    raw_items = _find_raw_items(frame_types)
    _, schemas = msgspec.json.schema_components(
        [*frame_types, *raw_items.values()], ref_template=_SCHEMAS + "{name}"
    )
    for (name, field), item in raw_items.items():
        schemas[name]["properties"][field]["items"] = _build_ref("schemas", item)
    for (name, field), bounds in _TEXT_BOUNDS.items():
        schema = schemas[name]["properties"][field]
        texts = [part for part in schema.get("anyOf", [schema]) if part.get("type") == "string"]
        texts[0].update(bounds)
    return dict(sorted(schemas.items()))


def _find_raw_items(frame_types: list[Any]) -> dict[tuple[str, str], type[msgspec.Struct]]:
    """Return the item types of the lists of encoded objects, by frame and field."""
    return {
        (cls.__name__, name): item
        for cls in frame_types
        for name, hint in get_type_hints(cls, include_extras=True).items()
        if (item := frames.find_raw_item(hint)) is not None
    }


def _list_error_codes() -> dict[str, Any]:
    return {
        code: {
            "temporary": meaning.is_temporary,
            "http": f"{meaning.http_status} {HTTPStatus(meaning.http_status).phrase}",
            **({} if meaning.close is None else {"close": int(meaning.close)}),
        }
        for code, meaning in CODES.items()
    }


def _close_codes() -> dict[str, Any]:
    return {
        str(int(code)): {
            "name": code.name.lower(),
            "reconnect": code < 3500,
            "description": _CLOSES[code],
        }
        for code in Close
    }


def main() -> None:
    data = msgspec.json.format(msgspec.json.encode(build_document()), indent=2)
    sys.stdout.write(data.decode() + "\n")


if __name__ == "__main__":
    main()
