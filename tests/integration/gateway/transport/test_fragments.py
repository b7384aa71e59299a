"""Fragmented messages (RFC 6455 section 5.4) and their limits.

`test_autobahn` covers sizes of fragments and stray continuations.
"""

from __future__ import annotations

from chatserver.dev.servers import Server
from tests.support.stack import Stack
from tests.support.wire import (
    PING,
    PONG,
    Frame,
    RawSocket,
    build_frame,
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


async def test_message_of_as_many_fragments_as_allowed_is_accepted(live: RawSocket) -> None:
    """The limit is inclusive."""
    await live.write(b"".join(fragments(question(size=100), [0] * (FRAGMENTS_MAX - 1))))

    await expect_answer(live)


async def test_fragments_up_to_the_size_limit_are_accepted(live: RawSocket) -> None:
    """The size limit applies to the whole message."""
    await live.write(b"".join(fragments(question(size=FRAME_BYTES_MAX), [30_000, 30_000])))

    await expect_answer(live)


async def test_fragmented_message_that_is_never_completed_is_closed(
    stack: Stack, small_limits_gateway: Server
) -> None:
    """A message must be complete within the message timeout, even if fragments arrive."""
    ws = await stack.open_live(small_limits_gateway.port, "fragments-slow")
    async with ws:
        first, second, *_ = fragments(question(), [5, 5])
        await ws.write(first + second)

        await ws.expect_close(POLICY)
