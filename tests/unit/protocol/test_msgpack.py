"""Conversion between JSON and msgpack: round trips and refused input."""

from __future__ import annotations

import datetime
from json import loads
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.errors import BadRequest
from chatserver.protocol import codec, msgpack
from chatserver.requests.registry import decode_frame

numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_object_is_equal_in_json_and_msgpack(value: Any) -> None:
    """The content does not depend on the encoding."""
    json = msgspec.json.encode(value)

    assert msgspec.msgpack.decode(msgpack.from_json(json)) == value
    assert msgspec.json.decode(msgpack.to_json(msgspec.msgpack.encode(value))) == value


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "not valid msgpack"),
        (b"\xc1", "not valid msgpack"),
        (b"\x81\xa1", "not valid msgpack"),
        (b"\xdf\xff\xff\xff\xff", "not valid msgpack"),  # a map of 4 billion entries
        (b"\xdd\xff\xff\xff\xff", "not valid msgpack"),  # an array of 4 billion items
        (b"\xdb\xff\xff\xff\xff", "not valid msgpack"),  # a string of 4 billion bytes
        (b"\xa2\xff\xfe", "not valid msgpack"),  # a string that is not UTF-8
        (b"\xc0\xc0", "not valid msgpack"),  # data after the object
        (msgspec.msgpack.encode({"token": b"bytes"}), "bytes"),
        (msgspec.msgpack.encode([datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)]), "datetime"),
        (msgspec.msgpack.encode(msgspec.msgpack.Ext(5, b"x")), "Ext"),
        (msgspec.msgpack.encode({1: 2}), "key is not a string"),
        (b"\x91" * 40 + b"\xc0", "nested more than 32 levels deep"),
        (b"\x91" * 200_000 + b"\xc0", "not valid msgpack|nested"),
    ],
)
def test_msgpack_without_a_json_equivalent_is_refused(data: bytes, problem: str) -> None:
    """A hostile length allocates no memory, and no value is converted by a guess."""
    with pytest.raises(msgpack.NotPacked, match=problem):
        msgpack.to_json(data)


@pytest.mark.parametrize("text", ["body", "id-of-a-chat", "key"])
def test_lone_surrogate_is_kept_for_the_frame_decoder_to_refuse(text: str) -> None:
    """Some encoders pack a lone surrogate as three bytes; the error names the request."""
    fields = {"type": "send", "id": 7, "\u20ac": "\ufffd", text: "aHALb"}
    data = msgspec.msgpack.encode(fields).replace(b"HAL", b"\xed\xa0\xbd")

    json = msgpack.to_json(data)

    with pytest.raises(BadRequest, match="contains a lone surrogate") as caught:
        decode_frame(json)
    assert not isinstance(caught.value, codec.NotJson)
    assert codec.find_request_id(json) == 7


@given(st.binary(max_size=60))
def test_any_bytes_become_json_or_are_refused(data: bytes) -> None:
    """No bytes raise any other error."""
    try:
        json = msgpack.to_json(data)
    except msgpack.NotPacked:
        return
    loads(json)  # msgspec would refuse a lone surrogate
