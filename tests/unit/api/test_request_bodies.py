"""Request bodies derived from frames: the same fields and bounds, without path parameters."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from litestar import Request

from chatserver.api.request_bodies import build_body_type, build_frame, get_ref
from chatserver.api.routes import messages
from chatserver.protocol import frames
from chatserver.requests.operation import Route
from chatserver.requests.registry import list_operations


def make_case(
    frame: type[msgspec.Struct], route: Route
) -> tuple[Any, type[msgspec.Struct], set[str]]:
    """Return the body of a declared route, its frame and the fields in its path."""
    names = re.findall(r"{(\w+):", route.path)
    return build_body_type(route.body, frame, *names), frame, set(names)


BODIES = [
    (messages.NewMessage, frames.Send, {"chat"}),
    *(
        make_case(operation.frame, operation.http)
        for operation in list_operations().values()
        if operation.http is not None and operation.http.body
    ),
]


def request_with(**headers: str) -> Request[Any, Any, Any]:
    """Return a request that has only these headers."""
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": raw})  # type: ignore[arg-type]  # no other key is read


@pytest.mark.parametrize(("body", "frame", "path"), BODIES)
def test_body_has_the_fields_of_its_frame(body: Any, frame: Any, path: set[str]) -> None:
    """A field added to a frame is also in HTTP, without a second definition."""
    frame_fields = {field.name: field.type for field in msgspec.structs.fields(frame)}
    body_fields = {field.name: field.type for field in msgspec.structs.fields(body)}

    expected = {name: kind for name, kind in frame_fields.items() if name not in path | {"id"}}
    if "ref" in expected:
        expected["ref"] = frames.Id | None
    assert body_fields == expected


@pytest.mark.parametrize(
    "json", [b'{"body":"x","chat":"c"}', b'{"body":"x","id":1}', b'{"body":"x","seq":1}', b"{}"]
)
def test_body_with_a_path_parameter_is_refused(json: bytes) -> None:
    """Ids are accepted from the path only, so the two can never differ."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json, type=messages.NewMessage)


def test_frame_of_a_body_has_its_fields_and_the_path() -> None:
    """Body and path together make the frame that a WebSocket client would send."""
    body = msgspec.json.decode(b'{"body":"hi","ref":"r1","reply_to":3}', type=messages.NewMessage)

    frame = build_frame(frames.Send, body, request_with(), chat="c1")

    assert frame == frames.Send(id=0, chat="c1", ref="r1", body="hi", reply_to=3)


def test_bodies_share_no_mutable_default() -> None:
    """Each body gets its own copy of a mutable default."""
    kind = build_body_type("Body", frames.Send, "chat")
    one, two = (msgspec.json.decode(b'{"body":""}', type=kind) for _ in range(2))

    for field in msgspec.structs.fields(kind):
        value = getattr(one, field.name)
        assert not isinstance(value, list) or value is not getattr(two, field.name)


def test_ref_in_the_body_takes_precedence_over_the_idempotency_key() -> None:
    """The key is used only if the body has no `ref`."""
    assert get_ref("mine", request_with(idempotency_key="k")) == "mine"


def test_reference_from_an_idempotency_key_is_deterministic() -> None:
    """A retry with the same key is the same request, even if the stored response was lost."""
    refs = [get_ref(None, request_with(idempotency_key=key)) for key in ("one", "one", "two")]

    assert refs[0] == refs[1] != refs[2]
    msgspec.convert({"id": 1, "chat": "c", "ref": refs[0], "type": "join"}, frames.Join)


def test_references_without_an_idempotency_key_differ() -> None:
    """Two requests without a key are two operations."""
    assert get_ref(None, request_with()) != get_ref(None, request_with())
