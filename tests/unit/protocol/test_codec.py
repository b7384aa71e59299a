"""The codec: decoding of client frames, its errors, and frames joined from parts."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import inspect as mi

from chatserver import errors
from chatserver.domain.ids import ID_PATTERN
from chatserver.errors import BadRequest
from chatserver.protocol import codec, frames
from chatserver.requests.registry import decode_frame
from tests.unit.protocol.shapes import (
    CLIENT_FRAMES,
    FREE_TEXT,
    Edge,
    edges_of,
    frame_with,
    objects_of,
    sample_of,
    tag_of,
    texts,
)

any_frame = st.one_of(*[objects_of(cls) for cls in CLIENT_FRAMES])
ids = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
kinds = st.from_regex(r"[a-z][a-z0-9_.-]{0,31}", fullmatch=True)
numbers = st.integers(1, frames.INT_MAX)

ERROR_CHARS_MAX = 300


# client frames


@given(any_frame)
def test_decode_client_frame_any_valid_object_round_trips(fields: dict[str, Any]) -> None:
    """Every object that the types allow decodes, and encodes to the same frame again."""
    frame = decode_frame(msgspec.json.encode(fields))

    again = decode_frame(codec.encode(frame))

    assert again == frame
    assert tag_of(type(frame)) == fields["type"]


@given(any_frame, ids, st.none() | st.booleans() | numbers | texts | st.lists(numbers))
def test_decode_client_frame_unknown_field_is_ignored(
    fields: dict[str, Any], name: str, value: Any
) -> None:
    """A newer client may send fields that this server does not know."""
    plain = decode_frame(msgspec.json.encode(fields))

    frame = decode_frame(msgspec.json.encode({f"x-{name}": value, **fields}))

    assert frame == plain


@given(st.binary(max_size=300))
@example(b"")
@example(b"\xef\xbb\xbf{}")
@example(b'{"type":"send","id":NaN}')
@example(b'{"type":"state","state":"\\ud800"}')
@example(b'{"type":"send","x":' + b"[" * 60_000)
@example(b"[" * 60_000)
@example(b'{"a":' * 10_000)
@example(b'{"type":"' + b"x" * 60_000 + b'"}')
@example(b'{"type":"state","state":"' + b"x" * 60_000 + b'"}')
@example(b'{"type":"x` - at `$.body"}')
@example(b'{"type":"hello","v":' + b"9" * 60_000 + b"}")
def test_decode_client_frame_any_bytes_give_frame_or_bad_request(data: bytes) -> None:
    """No bytes raise anything but BadRequest, with a short message."""
    try:
        decode_frame(data)
    except BadRequest as exc:
        assert 0 < len(exc.message) <= ERROR_CHARS_MAX


@given(any_frame, st.data())
def test_decode_client_frame_damaged_frame_gives_frame_or_bad_request(
    fields: dict[str, Any], data: st.DataObject
) -> None:
    """A frame with removed, changed or inserted bytes raises nothing but BadRequest."""
    whole = bytearray(msgspec.json.encode(fields))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole)))
        whole[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))

    try:
        decode_frame(bytes(whole))
    except BadRequest as exc:
        assert 0 < len(exc.message) <= ERROR_CHARS_MAX


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        b'{"type":"send","id":1,"chat":"c","ref":"r","body":"\xff"}',
        b'{"type":"send","id":1,"chat":"c","ref":"r","body":"\xed\xa0\x80"}',
        b'{"type":"send","id":1,"chat":"c","ref":"r","body":"a\x00b"}',
        b'{"type":"send","id":1,"chat":"c","ref":"r","body":"\\ud800"',
        b'{"type":"send","id":NaN,"chat":"c","ref":"r","body":"\\ud800"}',
        b'{"type":"send","id":1,"x":' + b"[" * 60_000 + b'"\\ud800"',
        b'{"type":"send","id":Infinity}',
        b"{'type':'send'}",
        b'{"type":"state","state":"fg"}{"type":"state","state":"fg"}',
    ],
)
def test_decode_client_frame_broken_json_is_not_json(data: bytes) -> None:
    """Bytes that are not JSON in UTF-8 are distinguished, because they close the connection."""
    with pytest.raises(codec.NotJson):
        decode_frame(data)


LONE_SURROGATES = [
    rb"\ud83d",
    rb"\ud83dx",
    rb"\udc00",
    rb"\ud83d\u0041",
    rb"\udc00\ud83d",
    rb"a\uD800",
]


@pytest.mark.parametrize("surrogate", LONE_SURROGATES)
@pytest.mark.parametrize("field", ["id", "chat", "ref", "body", "kind", "attachments", "new.deep"])
def test_decode_client_frame_lone_surrogate_is_bad_request(field: str, surrogate: bytes) -> None:
    """The error names the field and the request; the connection stays open."""
    fields: dict[str, object] = {"type": "send", "id": 7, "chat": "c", "ref": "r", "body": "b"}
    wrong: object = "SURROGATE"
    if field == "new.deep":
        fields["new"] = {"deep": wrong}
    else:
        fields[field] = [wrong] if field == "attachments" else wrong
    data = msgspec.json.encode(fields).replace(b"SURROGATE", surrogate)

    with pytest.raises(BadRequest) as caught:
        decode_frame(data)

    assert not isinstance(caught.value, codec.NotJson)
    assert caught.value.message == f"{field}: contains a lone surrogate"
    assert codec.find_request_id(data) == (None if field == "id" else 7)


@pytest.mark.parametrize("data", [b"[]", b'"send"', b"1", b"null", b"{}", b'{"type":"nosuch"}'])
def test_decode_client_frame_json_without_a_frame_is_bad_request(data: bytes) -> None:
    """JSON that is not a frame does not close the connection."""
    with pytest.raises(BadRequest) as caught:
        decode_frame(data)

    assert not isinstance(caught.value, codec.NotJson)


# bounds, from the types


@pytest.mark.parametrize("cls", CLIENT_FRAMES, ids=tag_of)
def test_decode_client_frame_value_at_bound_is_accepted(cls: type[frames.ClientFrame]) -> None:
    """The last value within each bound is accepted."""
    refused = {str(edge): error_of(edge, edge.within) for edge in edges_of(cls)}

    assert {edge: error for edge, error in refused.items() if error is not None} == {}


@pytest.mark.parametrize("cls", CLIENT_FRAMES, ids=tag_of)
def test_decode_client_frame_value_beyond_bound_is_refused_by_name(
    cls: type[frames.ClientFrame],
) -> None:
    """The first value beyond a bound is refused, and the message begins with the field."""
    wrong = {}
    for edge in edges_of(cls):
        field, error = ".".join(edge.path), error_of(edge, edge.beyond)
        if not (error or "").startswith((f"{field}:", f"{field}[0]:", f"{field}[...]:")):
            wrong[str(edge)] = error

    assert wrong == {}


def error_of(edge: Edge, value: object) -> str | None:
    """Return why a frame with this value is refused."""
    try:
        decode_frame(frame_with(edge, value))
    except BadRequest as exc:
        return exc.message
    return None


@pytest.mark.parametrize("cls", CLIENT_FRAMES, ids=tag_of)
def test_decode_client_frame_missing_field_is_refused_by_name(
    cls: type[frames.ClientFrame],
) -> None:
    """A frame without a required field is refused, and the message names the field."""
    fields = sample_of(cls)
    for name in fields.keys() - {"type"}:
        incomplete = {key: value for key, value in fields.items() if key != name}

        with pytest.raises(BadRequest, match=f"`{name}`"):
            decode_frame(msgspec.json.encode(incomplete))


@pytest.mark.parametrize("cls", CLIENT_FRAMES, ids=tag_of)
def test_client_frame_fields_all_have_bounds(cls: type[frames.ClientFrame]) -> None:
    """Every field of a client frame has a bound, or `domain.text_validation` checks it."""
    info = mi.type_info(cls)
    assert isinstance(info, mi.StructType)

    unbounded = {
        (tag_of(cls), field.encode_name)
        for field in info.fields
        for part in (field.type.types if isinstance(field.type, mi.UnionType) else [field.type])
        if not is_bounded(part)
    }

    assert unbounded <= FREE_TEXT


def is_bounded(info: mi.Type) -> bool:
    """Return whether the size of the type's values is bounded."""
    match info:
        case mi.IntType(ge=int(), le=int()) | mi.BoolType() | mi.NoneType() | mi.LiteralType():
            return True
        case mi.StrType(pattern=str()) | mi.StrType(max_length=int()):
            return True
        case mi.DictType(key_type=key, value_type=item, max_length=int()):
            return is_bounded(key) and is_bounded(item)
        case mi.ListType(item_type=item, max_length=int()):
            return is_bounded(item)
        case mi.StructType(fields=fields):
            return all(is_bounded(field.type) for field in fields)
    return False


# request ids of frames that do not decode


@given(st.binary(max_size=200))
@example(b'{"id":' + b"[" * 60_000)
@example(b'{"id":1,"x":"\xff"}')
def test_find_request_id_any_bytes_give_id_or_none(data: bytes) -> None:
    """No bytes raise an error in the search for a request id."""
    found = codec.find_request_id(data)

    assert found is None or 0 <= found <= frames.INT_MAX


@given(st.binary(max_size=200))
@example(b'{"ref":' + b"[" * 60_000)
@example(b'{"ref":"a b"}')
@example(b'{"ref":"a","x":"\xff"}')
def test_find_ref_any_bytes_give_a_valid_ref_or_none(data: bytes) -> None:
    """An error never repeats bytes of the client that are not an id."""
    found = codec.find_ref(data)

    assert found is None or re.fullmatch(ID_PATTERN, found)


def test_find_ref_of_bad_frame_finds_it() -> None:
    """The error for a frame with an invalid field names the send, for clients with an outbox."""
    data = b'{"type":"send","chat":"not an id","id":1,"ref":"r-1"}'

    assert codec.find_ref(data) == "r-1"


@given(st.integers(0, frames.INT_MAX))
def test_find_request_id_of_bad_frame_finds_it(number: int) -> None:
    """The error for a frame with a wrong field can still name its request."""
    data = b'{"type":"send","chat":"not an id","id":%d}' % number

    assert codec.find_request_id(data) == number


# frames joined from parts


@st.composite
def messages(draw: st.DrawFn) -> frames.Message:
    """Generate messages that can be committed."""
    return frames.Message(
        seq=draw(numbers),
        ts=draw(numbers),
        chat=draw(ids),
        mid=draw(ids),
        sender=draw(ids),
        ref=draw(ids),
        kind=draw(kinds),
        body=draw(texts),
        reply_to=draw(st.none() | numbers),
    )


def tail_of(message: frames.Message) -> bytes:
    """Return the tail of a message, encoded as in the gateway."""
    return codec.encode_message_tail(
        message.chat,
        message.mid,
        message.sender,
        message.ref,
        message.kind,
        message.body,
        message.reply_to,
    )


@given(messages())
def test_join_message_equals_encoded_struct(message: frames.Message) -> None:
    """A message joined from parts has the same bytes as the encoded struct."""
    joined = codec.join_message(message.seq, message.ts, tail_of(message))

    assert joined == codec.encode(message)
    assert codec.decode_message(joined) == message


@given(messages(), ids, numbers)
def test_join_event_message_decodes_to_event(message: frames.Message, epoch: str, seq: int) -> None:
    """A message event joined from parts decodes to the expected event."""
    body = codec.encode_event_body(message.chat, message.seq, message.ts, tail_of(message))

    event = msgspec.json.decode(codec.join_event(epoch, seq, body), type=frames.Event)

    assert event == frames.Event(
        epoch=epoch,
        seq=seq,
        kind="message",
        chat=message.chat,
        cs=message.seq,
        message=message,
    )


@given(ids, ids, numbers, st.builds(frames.Marks, user=ids, read=numbers, received=numbers))
def test_join_event_read_decodes_to_event(
    chat: str, epoch: str, seq: int, marks: frames.Marks
) -> None:
    """A read event joined from parts decodes to the expected event."""
    joined = codec.join_event(epoch, seq, codec.read_event_body(chat, marks))

    event = msgspec.json.decode(joined, type=frames.Event)

    assert event == frames.Event(epoch=epoch, seq=seq, kind="read", chat=chat, read=marks)


@given(
    ids,
    numbers,
    st.builds(
        frames.ChatInfo,
        chat=ids,
        kind=st.sampled_from(["direct", "group"]),
        members=st.lists(ids, max_size=4),
        name=st.none() | texts,
    ),
)
def test_join_event_chat_decodes_to_event(epoch: str, seq: int, info: frames.ChatInfo) -> None:
    """A chat event joined from parts decodes to the expected event."""
    joined = codec.join_event(epoch, seq, codec.encode_chat_event_body(info))

    event = msgspec.json.decode(joined, type=frames.Event)

    assert event == frames.Event(epoch=epoch, seq=seq, kind="chat", chat=info.chat, info=info)


def test_chat_event_of_many_members_lists_none() -> None:
    """Every member's inbox has a copy: a list of 256 members would take megabytes."""
    users = [f"{n:0>64}" for n in range(256)]
    info = frames.ChatInfo("g-1", "group", users, "Team", 256, {users[0]: "owner"}, invited=users)

    body = codec.encode_chat_event_body(info)
    event = msgspec.json.decode(codec.join_event("e", 1, body), type=frames.Event)

    assert event.info == frames.ChatInfo("g-1", "group", [], "Team", 256)
    assert len(body) < 200


@given(
    st.builds(
        frames.Ack,
        id=st.integers(0, frames.INT_MAX),
        ref=ids,
        mid=ids,
        seq=numbers,
        ts=numbers,
        dup=st.booleans(),
        durability=st.sampled_from(["hot", "stored"]),
    )
)
def test_encode_ack_equals_encoded_struct(ack: frames.Ack) -> None:
    """An ack joined from parts has the same bytes as the encoded struct."""
    encoded = codec.encode_ack(
        ack.id, ack.ref, ack.mid, ack.seq, ack.ts, dup=ack.dup, durability=ack.durability
    )

    assert encoded == codec.encode(ack)


# errors


@given(texts, st.none() | numbers, st.none() | st.just("r-1"), st.none() | numbers)
def test_encode_error_contains_code_message_and_retry(
    message: str, request_id: int | None, ref: str | None, retry_after_ms: int | None
) -> None:
    """An error frame has the cause, the retry time, and the id and ref of the request."""
    error = errors.RateLimited(message, retry_after_ms=retry_after_ms)

    fields = msgspec.json.decode(codec.encode_error(error, request_id, ref))

    expected = {
        "type": "error",
        "code": "rate_limited",
        "message": message,
        "temporary": True,
        "id": request_id,
        "ref": ref,
        "retry_after_ms": retry_after_ms,
    }
    assert fields == {name: value for name, value in expected.items() if value is not None}
