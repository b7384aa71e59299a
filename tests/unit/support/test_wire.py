"""The raw client follows RFC 6455; it violates it only on request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame as PeerFrame
from websockets.streams import StreamReader

from tests.support.wire import (
    BINARY,
    CLOSE,
    PING,
    TEXT,
    Frame,
    apply_mask,
    build_frame,
    build_request,
    close_payload,
)


def parse_by_library(data: bytes) -> PeerFrame:
    """Return the one frame in `data`, as an independent implementation reads it."""
    reader = StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    parser = PeerFrame.parse(reader.read_exact, mask=True)
    try:
        next(parser)
    except StopIteration as end:
        frame: PeerFrame = end.value
        return frame
    raise AssertionError("the frame is incomplete")


def test_build_frame_masked_hello_is_the_example_of_the_rfc() -> None:
    """The example is the masked "Hello" of RFC 6455, section 5.7."""
    assert build_frame(TEXT, b"Hello").hex() == "818537fa213d7f9f4d5158"


def test_build_frame_unmasked_fragment_is_the_example_of_the_rfc() -> None:
    """The example is the first fragment "Hel" of RFC 6455, section 5.7."""
    assert build_frame(TEXT, b"Hel", fin=False, mask=None).hex() == "010348656c"


def test_build_request_accept_is_the_example_of_the_rfc() -> None:
    """The example is the key and accept value of RFC 6455, section 1.3."""
    _, accept = build_request("localhost", key="dGhlIHNhbXBsZSBub25jZQ==")

    assert accept == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_build_request_changes_headers_by_name() -> None:
    """A header can be replaced, removed and repeated."""
    data, _ = build_request(
        "h", change={"Upgrade": None, "Host": "x", "Origin": "o"}, more=[("A", "1"), ("A", "2")]
    )

    lines = data.decode().split("\r\n")
    assert "Host: x" in lines
    assert "Origin: o" in lines
    assert lines.count("A: 1") == lines.count("A: 2") == 1
    assert not any(line.startswith("Upgrade") for line in lines)


@given(st.binary(max_size=300), st.binary(min_size=4, max_size=4))
def test_apply_mask_twice_is_the_payload(payload: bytes, mask: bytes) -> None:
    """Masking twice gives the payload."""
    assert apply_mask(apply_mask(payload, mask), mask) == payload


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_build_frame_any_length_is_read_by_another_implementation(opcode: int, size: int) -> None:
    """Every encoding of the length is accepted by another implementation."""
    payload = bytes(index % 251 for index in range(size))

    frame = parse_by_library(build_frame(opcode, payload))

    assert (frame.opcode, frame.data, frame.fin) == (opcode, payload, True)


def test_build_frame_forced_length_is_longer_than_needed() -> None:
    """A length can be encoded in a longer form than RFC 6455 allows."""
    assert build_frame(PING, b"ab", mask=None, length_bytes=2).hex() == "897e00026162"
    assert build_frame(PING, b"ab", mask=None, length_bytes=8).hex() == "897f00000000000000026162"


def test_frame_close_code_is_in_its_payload() -> None:
    """The code is the first two bytes of the payload, or None without a payload."""
    assert Frame(CLOSE, close_payload(1000, b"bye")).close_code == 1000
    assert Frame(CLOSE, b"").close_code is None
