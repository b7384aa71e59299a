"""Webhook signatures: only a holder of the secret can sign."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.features.webhooks.client import is_signed, sign

SECRET = b"s" * 32
NOW = 1_800_000_000.0


@given(st.binary(max_size=200))
def test_signature_is_valid_only_for_its_body_secret_and_time(body: bytes) -> None:
    header = sign(SECRET, NOW, body)

    assert is_signed(SECRET, header, body, NOW + 10)
    assert not is_signed(SECRET, header, body + b"x", NOW)
    assert not is_signed(b"t" * 32, header, body, NOW)
    assert not is_signed(SECRET, header.replace("t=1800", "t=1801"), body, NOW + 1e6)


@pytest.mark.parametrize(
    ("age_s", "is_valid"), [(-301, False), (-300, True), (300, True), (301, False)]
)
def test_signature_outside_the_time_window_is_invalid(age_s: int, is_valid: bool) -> None:
    """A recorded request cannot be sent again later."""
    assert is_signed(SECRET, sign(SECRET, NOW, b"x"), b"x", NOW + age_s) == is_valid


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
def test_malformed_signature_is_invalid(header: str) -> None:
    """No header raises an error."""
    assert not is_signed(SECRET, header, b"x", NOW)
