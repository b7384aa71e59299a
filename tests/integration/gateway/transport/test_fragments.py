"""Fragmented messages (RFC 6455 section 5.4) and their limits.

`test_autobahn` covers sizes of fragments and stray continuations.
"""

from __future__ import annotations

import pytest

from chatserver.dev.servers import Server
from tests.support.stack import Stack
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
PROTOCOL_ERROR, POLICY, TOO_BIG, NOT_CHAT = 1002, 1008, 1009, 3501


async def test_pings_between_fragments_are_answered_at_once(live: RawSocket) -> None:
    """Control frames between fragments are handled before the message is complete."""
    first, second, third = fragments(question(), [5, 5])
    await live.write(first + build_frame(PING, b"one"))
    assert await live.recv() == Frame(PONG, b"one")
    await live.write(second + build_frame(PONG, b"unsolicited") + build_frame(PING, b"two"))
    assert await live.recv() == Frame(PONG, b"two")

    await live.write(third)

    await expect_answer(live)


async def test_close_between_fragments_ends_the_connection(live: RawSocket) -> None:
    """A close between fragments is a protocol error."""
    first, _ = fragments(question(), [5])
    await live.write(first + build_frame(CLOSE, close_payload(1001)))

    await live.expect_close(1001, PROTOCOL_ERROR)


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
@pytest.mark.parametrize("fin", [True, False])
async def test_new_message_inside_fragments_is_a_protocol_error(
    live: RawSocket, opcode: int, fin: bool
) -> None:
    """Messages must not be interleaved."""
    first, _ = fragments(question(), [5])
    await live.write(first + build_frame(opcode, question(2), fin=fin))

    await live.expect_close(PROTOCOL_ERROR)


@pytest.mark.parametrize("rsv", [1, 2, 4])
async def test_reserved_bit_on_a_continuation_is_a_protocol_error(
    live: RawSocket, rsv: int
) -> None:
    """Reserved bits are checked on every frame."""
    first, _ = fragments(question(), [5])
    await live.write(first + build_frame(CONTINUATION, b"x", rsv=rsv))

    await live.expect_close(PROTOCOL_ERROR)


async def test_binary_message_in_fragments_is_closed_as_not_chat(live: RawSocket) -> None:
    """A fragmented binary message is refused like a whole one."""
    await live.write(build_frame(BINARY, b"{", fin=False) + build_frame(CONTINUATION, b"}"))

    await live.expect_close(NOT_CHAT)


async def test_message_of_as_many_fragments_as_allowed_is_accepted(live: RawSocket) -> None:
    """The limit is inclusive."""
    await live.write(b"".join(fragments(question(size=100), [0] * (FRAGMENTS_MAX - 1))))

    await expect_answer(live)


async def test_message_of_too_many_fragments_is_closed(live: RawSocket) -> None:
    """One fragment above the limit ends the connection, so tiny fragments cannot fill memory."""
    await live.write(b"".join(fragments(question(size=100), [0] * FRAGMENTS_MAX)))

    await live.expect_close(POLICY, TOO_BIG)


async def test_fragments_up_to_the_size_limit_are_accepted(live: RawSocket) -> None:
    """The size limit applies to the whole message."""
    await live.write(b"".join(fragments(question(size=FRAME_BYTES_MAX), [30_000, 30_000])))

    await expect_answer(live)


async def test_fragments_beyond_the_size_limit_are_closed_as_too_big(live: RawSocket) -> None:
    """Fragments below the limit must not add up to a message above it."""
    await live.write(b"".join(fragments(question(size=FRAME_BYTES_MAX + 1), [30_000, 30_000])))

    await live.expect_close(TOO_BIG)


async def test_fragmented_message_that_is_never_completed_is_closed(
    stack: Stack, small_limits_gateway: Server
) -> None:
    """A message must be complete within the message timeout, even if fragments arrive."""
    ws = await stack.open_live(small_limits_gateway.port, "fragments-slow")
    async with ws:
        first, second, *_ = fragments(question(), [5, 5])
        await ws.write(first + second)

        await ws.expect_close(POLICY)
