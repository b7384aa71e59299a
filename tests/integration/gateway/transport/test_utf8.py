"""Text messages are UTF-8, or the connection ends with 1007 (RFC 6455 section 8.1).

`test_autobahn` covers text in one frame.
"""

from __future__ import annotations

import pytest

from tests.support.wire import CONTINUATION, TEXT, RawSocket, build_frame
from tests.support.wirecases import expect_answer, fragments

BAD_DATA = 1007

VALID = {
    "two bytes": "\u00e9\u00df",
    "three bytes": "\u20ac\u4e2d\ud7ff\ue000\uffff",
    "four bytes": "\U00010000\U0001f600\U0010ffff",
    "replacement": "\ufffd",
    "non-characters": "\ufdd0\U0001fffe",
    "greek": "\u03ba\u1f79\u03c3\u03bc\u03b5",
}
INVALID = {
    "continuation alone": b"\x80",
    "many continuations": b"\x80\xbf\x80\xbf",
    "lead without rest": b"\xc3",
    "lead then ascii": b"\xc3a",
    "cut three bytes": b"\xe2\x82",
    "cut four bytes": b"\xf0\x9f\x98",
    "overlong slash": b"\xc0\xaf",
    "overlong in three": b"\xe0\x80\xaf",
    "overlong in four": b"\xf0\x80\x80\xaf",
    "overlong nul": b"\xc0\x80",
    "surrogate": b"\xed\xa0\x80",
    "surrogate pair": b"\xed\xa0\x81\xed\xb0\x80",
    "beyond the last": b"\xf4\x90\x80\x80",
    "five bytes": b"\xf8\x88\x80\x80\x80",
    "fe": b"\xfe",
    "ff": b"\xff",
    "after good text": "\u03ba\u1f79".encode() + b"\xed\xa0\x80edited",
}


def echo_request(pad: bytes) -> bytes:
    """Return a message that gets a response and contains these bytes."""
    return b'{"type":"nosuch","id":1,"pad":"' + pad + b'"}'


@pytest.mark.parametrize("text", VALID.values(), ids=VALID.keys())
async def test_valid_text_in_one_byte_fragments_is_accepted(live: RawSocket, text: str) -> None:
    """A fragment may end in the middle of a character."""
    payload = echo_request(text.encode())

    await live.write(b"".join(fragments(payload, [1] * (len(payload) - 1))))

    await expect_answer(live)


@pytest.mark.parametrize("bad", INVALID.values(), ids=INVALID.keys())
async def test_invalid_text_across_fragments_is_closed(live: RawSocket, bad: bytes) -> None:
    """Invalid bytes are detected across fragments, too."""
    payload = echo_request(bad)

    await live.write(b"".join(fragments(payload, [1] * (len(payload) - 1))))

    await live.expect_close(BAD_DATA)


async def test_invalid_text_at_the_end_of_a_message_is_closed(live: RawSocket) -> None:
    """A message that ends in the middle of a character is not text."""
    first = build_frame(TEXT, echo_request(b"")[:-2], fin=False)
    await live.write(first + build_frame(CONTINUATION, "\U0001f600".encode()[:3]))

    await live.expect_close(BAD_DATA)


async def test_invalid_text_in_the_first_fragment_is_closed_at_the_end_of_the_message(
    live: RawSocket,
) -> None:
    """An invalid byte in an early fragment is detected by the end of the message."""
    await live.write(build_frame(TEXT, echo_request(b"\xff")[:-2], fin=False))

    await live.send(CONTINUATION, b'"}')

    await live.expect_close(BAD_DATA)


async def test_message_before_invalid_text_is_answered(live: RawSocket) -> None:
    """A complete message before the error gets its response."""
    await live.write(
        build_frame(TEXT, echo_request(b"ok")) + build_frame(TEXT, echo_request(b"\xff"))
    )

    await expect_answer(live)
    await live.expect_close(BAD_DATA)
