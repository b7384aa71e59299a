"""Messages that end: what each form of one reads as, before and after."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.protocol import codec, message_expiry
from chatserver.protocol.frames import Message

ENDS = 1_795_000_060
MESSAGE = Message(
    7, 1_795_000_000_000_000, "c1", "m7", "bob", "r7", "text", "psst", 3, expires_at=ENDS
)


@pytest.mark.parametrize(("now_s", "is_over"), [(ENDS - 0.001, False), (ENDS, True)])
def test_message_is_over_from_its_second_on(now_s: float, is_over: bool) -> None:
    """Before `expires_at` the message is unchanged; from then on it has no content."""
    seen = message_expiry.as_of(MESSAGE, now_s)

    tombstone = msgspec.structs.replace(MESSAGE, body="", reply_to=None, deleted=True)
    assert message_expiry.has_expired(MESSAGE, now_s) == is_over
    assert seen == (tombstone if is_over else MESSAGE)


def test_message_without_an_end_stays() -> None:
    """Most do."""
    message = msgspec.structs.replace(MESSAGE, expires_at=None)

    assert message_expiry.as_of(message, 2**60) is message


@given(body=st.text(), ends=st.none() | st.integers(ENDS - 5, ENDS + 5))
def test_tail_reads_as_its_message_does(body: str, ends: int | None) -> None:
    """The bytes of the hot tier and the decoded message agree for any content."""
    tail = codec.encode_message_tail("c1", "m7", "bob", "r7", "text", body, 3, ends)
    message = codec.decode_message(codec.join_message(7, 9, tail))

    seen = message_expiry.tail_as_of(7, 9, tail, ENDS)

    assert codec.decode_message(codec.join_message(7, 9, seen)) == message_expiry.as_of(
        message, ENDS
    )


def test_body_that_looks_like_an_expiry_is_a_body() -> None:
    """A user's text is never mistaken for server fields."""
    tail = codec.encode_message_tail("c1", "m", "bob", "r", "text", '","expires_at":1,"', None)

    assert message_expiry.tail_as_of(1, 2, tail, ENDS) is tail
