"""Expiring messages, encoded and decoded, before and after their expiry."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.protocol import codec, expired_messages
from chatserver.protocol.frames import Message

EXPIRES_AT = 1_795_000_060
MESSAGE = Message(
    7, 1_795_000_000_000_000, "c1", "m7", "bob", "r7", "text", "hi", 3, expires_at=EXPIRES_AT
)


@pytest.mark.parametrize(
    ("now_s", "has_expired"), [(EXPIRES_AT - 0.001, False), (EXPIRES_AT, True)]
)
def test_message_is_a_tombstone_from_its_expiry(now_s: float, has_expired: bool) -> None:
    """Before `expires_at` the message is unchanged; from then on it has no content."""
    seen = expired_messages.apply_expiry(MESSAGE, now_s)

    tombstone = msgspec.structs.replace(MESSAGE, body="", reply_to=None, deleted=True)
    assert expired_messages.has_expired(MESSAGE, now_s) == has_expired
    assert seen == (tombstone if has_expired else MESSAGE)


def test_message_without_an_expiry_is_unchanged() -> None:
    message = msgspec.structs.replace(MESSAGE, expires_at=None)

    assert expired_messages.apply_expiry(message, 2**60) is message


@given(body=st.text(), ends=st.none() | st.integers(EXPIRES_AT - 5, EXPIRES_AT + 5))
def test_tail_and_message_agree_on_expiry(body: str, ends: int | None) -> None:
    """The bytes of the hot tier and the decoded message agree for any content."""
    tail = codec.encode_message_tail("c1", "m7", "bob", "r7", "text", body, 3, ends)
    message = codec.decode_message(codec.join_message(7, 9, tail))

    seen = expired_messages.apply_expiry_to_tail(7, 9, tail, EXPIRES_AT)

    assert codec.decode_message(codec.join_message(7, 9, seen)) == expired_messages.apply_expiry(
        message, EXPIRES_AT
    )


def test_body_that_looks_like_an_expiry_is_unchanged() -> None:
    """The text of a user is never parsed as a field of the server."""
    tail = codec.encode_message_tail("c1", "m", "bob", "r", "text", '","expires_at":1,"', None)

    assert expired_messages.apply_expiry_to_tail(1, 2, tail, EXPIRES_AT) is tail
