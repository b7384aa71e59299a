"""Notices and subscriptions are bounded and do not reveal secrets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.errors import BadRequest
from chatserver.features.push.model import (
    PAYLOAD_BYTES_MAX,
    Notice,
    Subscription,
    parse_apns_token,
    parse_key,
    parse_token,
    subscription_id,
    truncate_text,
)


@given(st.text(max_size=4000), st.text(max_size=80), st.text(max_size=80))
def test_notice_of_any_text_fits_into_a_push(text: str, name: str, title: str) -> None:
    """With encryption, the payload stays below 4,096 bytes."""
    text, name, title = (part.encode("utf-8", "replace").decode() for part in (text, name, title))
    notice = Notice(
        ChatId("c" * 64), Seq(2**53), 2**53, UserId("u" * 64), name, title, text, 2**53, 2**53
    )

    encoded = notice.encode()

    assert len(encoded) <= PAYLOAD_BYTES_MAX
    assert json.loads(encoded)["chat"] == "c" * 64


def test_notice_and_subscription_show_no_secret_in_logs() -> None:
    """Their representation contains neither the text nor the target."""
    notice = Notice(ChatId("c"), Seq(1), 1, UserId("a"), "a", "", "the text", 1, None)
    subscription = Subscription("s", UserId("b"), "web", "https://secret", "p256", "auth-secret")

    shown = f"{notice!r} {subscription!r}"

    assert "the text" not in shown
    assert "secret" not in shown
    assert "p256" not in shown


def test_notices_share_a_topic_only_within_a_chat() -> None:
    """Push services accept topics of at most 32 characters."""
    first, same, other = (
        Notice(ChatId(chat), Seq(seq), 1, UserId("a"), "a", "", "", 1, 1).topic
        for chat, seq in (("c", 1), ("c", 2), ("d", 1))
    )

    assert first == same != other
    assert len(first) == 32
    assert first.replace("-", "").replace("_", "").isalnum()


def test_shorten_returns_one_line() -> None:
    """A truncated text ends with an ellipsis."""
    assert truncate_text("a\nb  c", 10) == "a b c"
    assert truncate_text("abcdef", 4) == "abc…"


def test_apns_token_is_hexadecimal_of_a_bounded_length() -> None:
    """It becomes part of a path, and a device must have only one form of it."""
    assert parse_apns_token("AB" * 32) == "ab" * 32
    assert parse_apns_token("0f" * 100) == "0f" * 100
    for invalid in (
        "",
        "ab" * 31,
        "ab" * 101,
        "a" * 65,
        "../" * 24,
        "g" * 64,
        "ab" * 32 + "\n",
        "٣" * 64,
    ):
        with pytest.raises(BadRequest, match="32 to 100 bytes"):
            parse_apns_token(invalid)


def test_subscription_keys_and_tokens_are_checked() -> None:
    """Subscriptions that could not be used are not stored."""
    assert parse_key("A" * 22 + "==", "auth", 16) == "A" * 22
    for invalid in ("", "A" * 21, "A" * 30, "*" * 22):
        with pytest.raises(BadRequest):
            parse_key(invalid, "auth", 16)
    assert parse_token("a:b-c") == "a:b-c"
    for invalid in ("", "a b", "ä", "x" * 513):
        with pytest.raises(BadRequest):
            parse_token(invalid)
    assert subscription_id("web", "x") == subscription_id("web", "x") != subscription_id("fcm", "x")
