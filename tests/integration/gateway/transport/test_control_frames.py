"""Control frames: ping, pong and close (RFC 6455 sections 5.5 and 7).

`test_autobahn` covers payloads of pings, unsolicited pongs and the other close codes.
"""

from __future__ import annotations

import pytest

from tests.support.wire import CLOSE, PING, PONG, TEXT, Frame, RawSocket, build_frame, close_payload
from tests.support.wirecases import expect_answer, question

PROTOCOL_ERROR, BAD_DATA, POLICY = 1002, 1007, 1008


async def test_pings_in_one_packet_are_all_answered_in_order(live: RawSocket) -> None:
    """Ten pings get ten pongs."""
    await live.write(b"".join(build_frame(PING, b"%d" % number) for number in range(10)))

    for number in range(10):
        assert await live.recv() == Frame(PONG, b"%d" % number)


@pytest.mark.parametrize("opcode", [PING, PONG])
async def test_flood_of_pings_or_pongs_is_closed(live: RawSocket, opcode: int) -> None:
    """A hundred at once are accepted. A flood is closed after the frames before it are answered."""
    await live.write(build_frame(opcode, b"x") * 100 + build_frame(TEXT, question()))
    pongs = [await live.recv() for _ in range(100 if opcode == PING else 0)]
    await expect_answer(live)

    await live.write(build_frame(opcode, b"x") * 1000)

    before, frame = await live.drain_to_close()
    assert (set(pongs) - {Frame(PONG, b"x")}, frame.close_code) == (set(), POLICY)
    assert len(before) < 500


async def test_close_with_a_reason_in_another_language_is_echoed(live: RawSocket) -> None:
    """A close is answered with its code. Then the server ends the connection."""
    await live.send(CLOSE, close_payload(4000, "gr\u00fc\u00dfe".encode()))

    before, frame = await live.drain_to_close()

    assert (before, frame.close_code) == ([], 4000)
    await live.expect_end()


async def test_close_without_a_code_is_answered_without_one(live: RawSocket) -> None:
    """A close may be empty, and so is its response."""
    await live.send(CLOSE)

    before, frame = await live.drain_to_close()

    assert (before, frame.payload) == ([], b"")
    await live.expect_end()


async def test_frames_after_a_close_are_not_answered(live: RawSocket) -> None:
    """Frames after a close are ignored."""
    packet = build_frame(CLOSE, close_payload(1000))
    packet += build_frame(TEXT, question()) + build_frame(PING, b"late")
    await live.write(packet)

    before, frame = await live.drain_to_close()

    assert (before, frame.close_code) == ([], 1000)
    await live.expect_end()


async def test_message_before_a_close_is_answered(live: RawSocket) -> None:
    """A message before the close in the same packet gets its response first."""
    await live.write(build_frame(TEXT, question()) + build_frame(CLOSE, close_payload(1000)))

    await expect_answer(live)
    assert (await live.recv()).close_code == 1000
    await live.expect_end()
