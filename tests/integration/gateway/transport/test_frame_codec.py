"""WebSocket framing (RFC 6455 section 5): lengths, masks, reserved bits, packets.

Each test sends raw bytes. The response proves that the server accepted a message: a frame of an
unknown type is answered with an `error` that has its id. `test_autobahn` covers reserved opcodes
and small packets.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.wire import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Frame,
    RawSocket,
    build_frame,
    close_payload,
)
from tests.support.wirecases import expect_answer, fragments, question

FRAME_BYTES_MAX, FRAGMENTS_MAX = 65_536, 1000
PROTOCOL_ERROR, BAD_DATA, POLICY, TOO_BIG, NOT_CHAT = 1002, 1007, 1008, 1009, 3501
FIRST, _ = fragments(question(), [5])


def announce(size: int) -> bytes:
    """Return the header of a text frame with a 64-bit length."""
    return b"\x81\xff" + size.to_bytes(8, "big") + b"\0\0\0\0"


# What a client must not send, and the codes that may close its connection. Section numbers are
# those of RFC 6455.
REFUSED: dict[str, tuple[list[bytes], tuple[int, ...]]] = {
    "text beyond the limit": ([build_frame(TEXT, question(size=FRAME_BYTES_MAX + 1))], (TOO_BIG,)),
    # The header alone is enough: the payload is neither awaited nor stored.
    "announced length beyond the limit": (
        [announce(size) for size in (FRAME_BYTES_MAX + 1, 2**31, 2**63 - 1)],
        (TOO_BIG,),
    ),
    "length with the highest bit (5.2)": ([announce(2**63)], (PROTOCOL_ERROR, TOO_BIG)),
    "unmasked frame (5.1)": (
        [build_frame(opcode, b"{}", mask=None) for opcode in (TEXT, BINARY, PING, PONG, 0x0)]
        + [build_frame(CLOSE, b"\x03\xe8", mask=None)],
        (PROTOCOL_ERROR,),
    ),
    "reserved bit without an extension": (
        [build_frame(opcode, b"{}", rsv=rsv) for opcode in (TEXT, PING) for rsv in range(1, 8)],
        (PROTOCOL_ERROR,),
    ),
    "reserved bit on a continuation": (
        [FIRST + build_frame(CONTINUATION, b"x", rsv=rsv) for rsv in (1, 2, 4)],
        (PROTOCOL_ERROR,),
    ),
    "binary message": (
        [
            build_frame(BINARY, question()),
            build_frame(BINARY, b"{", fin=False) + build_frame(CONTINUATION, b"}"),
        ],
        (NOT_CHAT,),
    ),
    "close between fragments": (
        [FIRST + build_frame(CLOSE, close_payload(1001))],
        (1001, PROTOCOL_ERROR),
    ),
    "new message inside fragments": (
        [
            FIRST + build_frame(opcode, question(2), fin=fin)
            for opcode in (TEXT, BINARY)
            for fin in (True, False)
        ],
        (PROTOCOL_ERROR,),
    ),
    # Tiny fragments cannot fill memory.
    "too many fragments": (
        [b"".join(fragments(question(size=100), [0] * FRAGMENTS_MAX))],
        (POLICY, TOO_BIG),
    ),
    "fragments beyond the size limit": (
        [b"".join(fragments(question(size=FRAME_BYTES_MAX + 1), [30_000, 30_000]))],
        (TOO_BIG,),
    ),
    "control frame of 126 bytes": (
        [build_frame(opcode, b"\x03\xe8" + b"x" * 124) for opcode in (PING, PONG, CLOSE)],
        (PROTOCOL_ERROR,),
    ),
    "fragmented control frame": (
        [build_frame(opcode, b"\x03\xe8", fin=False) for opcode in (PING, PONG, CLOSE)],
        (PROTOCOL_ERROR,),
    ),
    "reserved or undefined close code": (
        [build_frame(CLOSE, close_payload(code)) for code in (1015, 5000, 65_535)],
        (PROTOCOL_ERROR,),
    ),
    "close reason that is not UTF-8": (
        [
            build_frame(CLOSE, close_payload(1000, reason))
            for reason in (b"\xff", b"\xc3", b"ok \xed\xa0\x80", b"\xf4\x90\x80\x80")
        ],
        (BAD_DATA, PROTOCOL_ERROR),
    ),
}


@pytest.mark.parametrize(
    ("sent", "codes"),
    [
        pytest.param(sent, codes, id=f"{what} {number}")
        for what, (cases, codes) in REFUSED.items()
        for number, sent in enumerate(cases)
    ],
)
async def test_frame_that_is_not_allowed_is_closed_with_its_code(
    live: RawSocket, sent: bytes, codes: tuple[int, ...]
) -> None:
    """The server does not wait for the rest of the frame or of the message."""
    await live.write(sent)

    await live.expect_close(*codes)


@pytest.mark.parametrize("size", [60, 125, 126, 127, 128, 65_535, FRAME_BYTES_MAX])
async def test_text_of_any_length_up_to_the_limit_is_accepted(live: RawSocket, size: int) -> None:
    """Each encoding of the length is accepted, at its bounds and at the limit."""
    await live.send(TEXT, question(size=size))

    await expect_answer(live)


@pytest.mark.parametrize("mask", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x01\x02\x03\x04"])
async def test_any_mask_is_accepted(live: RawSocket, mask: bytes) -> None:
    """A mask may be any four bytes, including zeros."""
    await live.send(TEXT, question(size=131), mask=mask)

    await expect_answer(live)


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
