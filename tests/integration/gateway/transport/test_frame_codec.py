"""WebSocket framing (RFC 6455 section 5): lengths, masks, reserved bits, packets.

Each test sends raw bytes. The response proves that the server accepted a message: a frame of an
unknown type is answered with an `error` that has its id. `test_autobahn` covers reserved opcodes
and small packets.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.wire import BINARY, PING, PONG, TEXT, Frame, RawSocket, build_frame
from tests.support.wirecases import expect_answer, question

FRAME_BYTES_MAX = 65_536
PROTOCOL_ERROR, TOO_BIG, NOT_CHAT = 1002, 1009, 3501


@pytest.mark.parametrize("size", [60, 125, 126, 127, 128, 65_535, FRAME_BYTES_MAX])
async def test_text_of_any_length_up_to_the_limit_is_accepted(live: RawSocket, size: int) -> None:
    """Each encoding of the length is accepted, at its bounds and at the limit."""
    await live.send(TEXT, question(size=size))

    await expect_answer(live)


async def test_text_beyond_the_limit_is_closed_as_too_big(live: RawSocket) -> None:
    """One byte more than the limit ends the connection with 1009."""
    await live.send(TEXT, question(size=FRAME_BYTES_MAX + 1))

    await live.expect_close(TOO_BIG)


@pytest.mark.parametrize("size", [FRAME_BYTES_MAX + 1, 2**31, 2**63 - 1])
async def test_announced_length_beyond_the_limit_is_closed_at_once(
    live: RawSocket, size: int
) -> None:
    """The header alone is enough to refuse a frame; the payload is neither awaited nor stored."""
    await live.write(b"\x81\xff" + size.to_bytes(8, "big") + b"\0\0\0\0")

    await live.expect_close(TOO_BIG)


async def test_length_with_the_highest_bit_is_refused(live: RawSocket) -> None:
    """The most significant bit of a 64-bit length must be 0 (section 5.2)."""
    await live.write(b"\x81\xff" + (2**63).to_bytes(8, "big") + b"\0\0\0\0")

    await live.expect_close(PROTOCOL_ERROR, TOO_BIG)


@pytest.mark.parametrize("mask", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x01\x02\x03\x04"])
async def test_any_mask_is_accepted(live: RawSocket, mask: bytes) -> None:
    """A mask may be any four bytes, including zeros."""
    await live.send(TEXT, question(size=131), mask=mask)

    await expect_answer(live)


@pytest.mark.parametrize("opcode", [TEXT, BINARY, PING, PONG, 0x0, 0x8])
async def test_unmasked_frame_is_closed_as_protocol_error(live: RawSocket, opcode: int) -> None:
    """A client that does not mask is refused (section 5.1)."""
    await live.send(opcode, b"\x03\xe8" if opcode == 0x8 else b"{}", mask=None)

    await live.expect_close(PROTOCOL_ERROR)


@pytest.mark.parametrize("rsv", range(1, 8))
@pytest.mark.parametrize("opcode", [TEXT, PING])
async def test_reserved_bit_is_closed_as_protocol_error(
    live: RawSocket, rsv: int, opcode: int
) -> None:
    """No extension was negotiated, so reserved bits must be 0."""
    await live.send(opcode, b"{}", rsv=rsv)

    await live.expect_close(PROTOCOL_ERROR)


@pytest.mark.parametrize("bad", [{"rsv": 4}, {"mask": None}])
async def test_message_before_a_broken_frame_is_still_answered(
    live: RawSocket, bad: dict[str, Any]
) -> None:
    """A complete message before the error gets its response; later ones do not."""
    packet = build_frame(TEXT, question(1))
    packet += build_frame(TEXT, question(2), **bad) + build_frame(TEXT, question(3))
    await live.write(packet)

    await expect_answer(live, 1)
    await live.expect_close(PROTOCOL_ERROR)


async def test_binary_message_is_closed_as_not_chat(live: RawSocket) -> None:
    """chat.v1 allows only text messages."""
    await live.send(BINARY, question())

    await live.expect_close(NOT_CHAT)


async def test_frame_received_byte_by_byte_is_accepted(live: RawSocket) -> None:
    """TCP may split a frame anywhere, whatever the encoding of its length."""
    for number, size in enumerate((60, 130), start=1):
        for byte in build_frame(TEXT, question(number, size)):
            await live.write(bytes([byte]))

        await expect_answer(live, number)


async def test_many_frames_in_one_packet_are_answered_in_order(live: RawSocket) -> None:
    """A packet may contain many frames of all lengths; each gets its response."""
    sizes = [60, 126, 3000, 61, 62]
    packet = b"".join(build_frame(TEXT, question(n, size)) for n, size in enumerate(sizes))
    await live.write(packet + build_frame(PING, b"end"))

    for number in range(len(sizes)):
        await expect_answer(live, number)
    assert await live.recv() == Frame(PONG, b"end")


async def test_frame_and_a_half_in_one_packet_waits_for_the_rest(live: RawSocket) -> None:
    """The part of a frame in the previous packet is kept."""
    first, second = build_frame(TEXT, question(1)), build_frame(TEXT, question(2, 300))
    for cut in (1, 3, 5, 100):
        await live.write(first + second[:cut])
        await expect_answer(live, 1)
        await live.write(second[cut:])
        await expect_answer(live, 2)


async def test_server_frames_are_final_unmasked_and_without_reserved_bits(
    live: RawSocket,
) -> None:
    """The server's own frames conform to RFC 6455 section 5."""
    await live.send(TEXT, question())

    frame = await live.recv()

    assert (frame.opcode, frame.fin, frame.rsv, frame.masked) == (TEXT, True, 0, False)
