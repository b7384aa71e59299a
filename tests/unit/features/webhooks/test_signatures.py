"""Webhook signatures: only a holder of the secret can sign and verify."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.features.webhooks.client import is_signed, sign

SECRET = b"s" * 32
NOW = 1_800_000_000.0


@given(st.binary(max_size=200))
def test_signature_of_a_body_holds_for_that_body_alone(body: bytes) -> None:
    """Another body, another secret, another time: none of them is signed."""
    header = sign(SECRET, NOW, body)

    assert is_signed(SECRET, header, body, NOW + 10)
    assert not is_signed(SECRET, header, body + b"x", NOW)
    assert not is_signed(b"t" * 32, header, body, NOW)
    assert not is_signed(SECRET, header.replace("t=1800", "t=1801"), body, NOW + 1e6)


@pytest.mark.parametrize(
    ("age_s", "holds"), [(-301, False), (-300, True), (300, True), (301, False)]
)
def test_signature_too_old_or_of_the_future_does_not_hold(age_s: int, holds: bool) -> None:
    """A recorded request cannot be sent again later."""
    assert is_signed(SECRET, sign(SECRET, NOW, b"x"), b"x", NOW + age_s) == holds


@pytest.mark.parametrize(
    "header",
    [
        "",
        "t=",
        "v1=",
        "t=1800000000",
        "t=x,v1=y",
        "t=1800000000,v1=",
        "t=\N{ARABIC-INDIC DIGIT ONE},v1=\xe9",
        "t=" + "9" * 40,
    ],
)
def test_signature_that_is_none_does_not_hold(header: str) -> None:
    """Any header is judged without an exception."""
    assert not is_signed(SECRET, header, b"x", NOW)
