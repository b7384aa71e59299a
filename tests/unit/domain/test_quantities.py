"""Quantities as people type them."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chatserver.domain.quantities import (
    Kind,
    format_bytes,
    format_count,
    format_quantity,
    parse_quantity,
)
from chatserver.errors import BadRequest

BOUNDS: dict[Kind, tuple[float, float]] = {
    "number": (0.0, 1e12),
    "share": (0.0, 1.0),
    "bytes": (0.0, 1e18),
    "days": (0.0, 1e6),
}


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("10m", "number", 10_000_000),
        ("1.5K", "number", 1500),
        ("2b", "number", 2e9),
        ("1_000", "number", 1000),
        ("1,000", "number", 1000),
        (" 40 ", "number", 40),
        ("5%", "share", 0.05),
        ("0.05", "share", 0.05),
        ("100 %", "share", 1),
        ("200", "bytes", 200),
        ("1.5GB", "bytes", 1.5e9),
        ("2KiB", "bytes", 2048),
        ("90d", "days", 90),
        ("12h", "days", 0.5),
        ("2y", "days", 730),
        ("30min", "days", 1 / 48),
    ],
)
def test_quantity_is_parsed_with_its_unit(text: str, kind: Kind, value: float) -> None:
    """A unit may be in upper or lower case and follow a space."""
    assert parse_quantity(text, kind, "--x", *BOUNDS[kind]) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("many", "number", "examples: 200, 2k"),
        ("-1", "number", "examples:"),
        ("1e400", "number", "examples:"),
        ("nan", "number", "examples:"),
        ("inf", "number", "examples:"),
        ("10m", "bytes", "examples: 200, 2KB"),
        ("5GB", "number", "examples:"),
        ("", "days", "examples: 12h"),
        ("1.2.3", "number", "examples:"),
        ("9" * 400, "number", "must be"),
        ("120%", "share", "must be 0% to 100%; got 120%"),
        ("2t", "number", "must be 0 to 1t; got 2t"),
    ],
)
def test_invalid_quantity_is_refused_with_its_option(text: str, kind: Kind, message: str) -> None:
    """The message has examples or the limits."""
    with pytest.raises(BadRequest) as error:
        parse_quantity(text, kind, "--users", *BOUNDS[kind])

    assert error.value.message.startswith("--users: ")
    assert message in error.value.message


@given(st.sampled_from(sorted(BOUNDS)), st.floats(0.001, 1.0))
def test_shown_quantity_parses_to_the_same_value(kind: Kind, value: float) -> None:
    value *= 1 if kind == "share" else 1000

    assert parse_quantity(
        format_quantity(value, kind), kind, "--x", *BOUNDS[kind]
    ) == pytest.approx(value, rel=1e-3)


@given(st.text(max_size=20))
def test_any_text_is_a_quantity_or_a_bad_request(text: str) -> None:
    """No input raises any other error."""
    try:
        value = parse_quantity(text, "number", "--x", 0, 1e12)
    except BadRequest as exc:
        assert exc.message.startswith("--x: ")
    else:
        assert 0 <= value <= 1e12


def test_bytes_have_a_decimal_unit() -> None:
    """Disks and S3 use decimal units."""
    assert [format_bytes(n) for n in (0, 999, 1500, 2.5e12)] == ["0B", "999B", "1.5KB", "2.5TB"]


def test_count_has_singular_plural_and_separators() -> None:
    """Large numbers have thousands separators."""
    texts = [format_count(n, "entry", "entries") for n in (0, 1, 2)]

    assert texts == ["0 entries", "1 entry", "2 entries"]
    assert format_count(12_044, "chat") == "12,044 chats"
