"""Our own parsing and serialization of frames, compared with the websockets library."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from chatserver.gateway.transport.frame_codec import (
    HEADER_BYTES_MAX,
    NeedMore,
    encode_text_frame,
    encode_text_header,
    find_frame_end,
    is_plain_text,
    repack,
    unmask,
)

# The limits of the length in the second byte, in 16 bits and in 64 bits; and 2,048, up
# to which headers are precomputed.
EDGES = [0, 1, 124, 125, 126, 127, 2047, 2048, 65_534, 65_535, 65_536, 70_000]

sizes = st.sampled_from(EDGES) | st.integers(0, 300)
opcodes = st.sampled_from([Opcode.TEXT, Opcode.BINARY, Opcode.CONT])


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    """Generate data frames of a client and control frames."""
    if draw(st.booleans()):
        return Frame(
            draw(opcodes), draw(st.binary(max_size=2)) * (draw(sizes) // 2), draw(st.booleans())
        )
    control = draw(st.sampled_from([Opcode.PING, Opcode.PONG, Opcode.CLOSE]))
    return Frame(control, draw(st.binary(max_size=125)))


@pytest.mark.parametrize("size", EDGES)
def test_text_frame_equals_the_frame_of_the_library(size: int) -> None:
    """The header has the shortest form for its length (RFC 6455, 5.2)."""
    payload = b"x" * size

    assert encode_text_frame(payload) == Frame(Opcode.TEXT, payload).serialize(mask=False)
    assert encode_text_header(size) + payload == encode_text_frame(payload)


@pytest.mark.parametrize("size", EDGES)
@pytest.mark.parametrize("is_masked", [True, False])
def test_frame_end_finds_payload_and_end(size: int, is_masked: bool) -> None:
    """Start and end are exact for every encoding of the length."""
    data = Frame(Opcode.TEXT, b"x" * size).serialize(mask=is_masked)

    start, end = find_frame_end(data, 0)

    assert end == len(data)
    assert end - start == size
    assert start <= HEADER_BYTES_MAX


@given(st.lists(frames(), min_size=1, max_size=5))
def test_frame_end_splits_a_stream_into_frames(sent: list[Frame]) -> None:
    """Frames that arrive together are split where the library would split them."""
    pieces = [frame.serialize(mask=True) for frame in sent]
    data, at, ends = b"".join(pieces), 0, []

    while at < len(data):
        _, at = find_frame_end(data, at)
        ends.append(at)

    assert ends == [sum(map(len, pieces[: n + 1])) for n in range(len(pieces))]


@given(frames(), st.binary(max_size=20))
def test_frame_end_of_a_partial_frame_is_correct_or_needs_more(frame: Frame, before: bytes) -> None:
    """A frame in several packets gives its true end or `NeedMore`, never a wrong end."""
    whole = frame.serialize(mask=True)
    expected = find_frame_end(before + whole, len(before))

    for size in range(min(len(whole), HEADER_BYTES_MAX + 1)):
        try:
            found = find_frame_end(before + whole[:size], len(before))
        except NeedMore:
            continue
        assert found == expected


@given(st.binary(max_size=300))
def test_unmask_returns_the_payload(payload: bytes) -> None:
    """A masked text frame is decoded without the library."""
    data = b"junk" + Frame(Opcode.TEXT, payload).serialize(mask=True)
    start, end = find_frame_end(data, 4)

    assert is_plain_text(data, 4)
    assert unmask(data, start, end) == payload


@pytest.mark.parametrize(
    "frame",
    [
        Frame(Opcode.TEXT, b"x", fin=False),
        Frame(Opcode.BINARY, b"x"),
        Frame(Opcode.CONT, b"x"),
        Frame(Opcode.PING, b"x"),
    ],
)
def test_is_plain_text_of_any_other_frame_is_false(frame: Frame) -> None:
    """The fast path takes only whole, masked text frames without reserved bits."""
    assert not is_plain_text(frame.serialize(mask=True), 0)


@pytest.mark.parametrize("bit", [0x40, 0x20, 0x10])
def test_is_plain_text_with_a_reserved_bit_is_false(bit: int) -> None:
    """The library refuses an extension that was not negotiated."""
    first, *rest = Frame(Opcode.TEXT, b"x").serialize(mask=True)

    assert not is_plain_text(bytes([first | bit, *rest]), 0)


def test_is_plain_text_of_an_unmasked_frame_is_false() -> None:
    """An unmasked frame breaks the protocol, and the library reports it."""
    assert not is_plain_text(encode_text_frame(b"x"), 0)


@given(st.lists(st.sampled_from([0, 30, 120, 130, 2050, 66_000]), max_size=5))
def test_repacked_frames_are_binary_frames_of_the_same_objects(sizes: list[int]) -> None:
    """Each text frame becomes one valid binary frame, in order."""
    bodies = ["x" * size for size in sizes]
    data = repack(
        b"".join(encode_text_frame(msgspec.json.encode({"body": body})) for body in bodies)
    )

    found, at = [], 0
    while at < len(data):
        start, end = find_frame_end(data, at)
        assert data[at:end] == Frame(Opcode.BINARY, data[start:end]).serialize(mask=False)
        found.append(msgspec.msgpack.decode(data[start:end])["body"])
        at = end
    assert found == bodies
