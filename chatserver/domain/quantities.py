"""Parsing and formatting of quantities: ``10m`` users, ``5%``, ``90d``, ``1 chat``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

from chatserver.errors import BadRequest

Kind = Literal["number", "share", "bytes", "days"]
_THOUSANDS: Final = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "bn": 1e9, "t": 1e12}
_BYTES: Final = {
    "": 1.0,
    "b": 1.0,
    **{f"{letter}b": 1000.0 ** (n + 1) for n, letter in enumerate("kmgtp")},
    **{f"{letter}ib": 1024.0 ** (n + 1) for n, letter in enumerate("kmgtp")},
}
_DAYS: Final = {
    "s": 1 / 86_400,
    "min": 1 / 1440,
    "h": 1 / 24,
    "": 1.0,
    "d": 1.0,
    "w": 7.0,
    "y": 365.0,
}
_UNITS: Final[Mapping[Kind, Mapping[str, float]]] = {
    "number": _THOUSANDS,
    "share": {"": 1.0, "%": 0.01},
    "bytes": _BYTES,
    "days": _DAYS,
}
_NAMES: Final[Mapping[Kind, str]] = {
    "number": "number",
    "share": "share",
    "bytes": "number of bytes",
    "days": "time",
}
_EXAMPLES: Final[Mapping[Kind, str]] = {
    "number": "200, 2k, 1.5m, 3b",
    "share": "5%, 0.05",
    "bytes": "200, 2KB, 1.5GB, 4GiB",
    "days": "12h, 90d, 4w, 2y",
}
_FORM: Final = re.compile(r"([0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)\s*([a-zA-Z%]*)")


def format_count(count: int, singular: str, many: str | None = None) -> str:
    """Return a number with its noun: ``1 chat``, ``2 chats``, ``0 entries``."""
    return f"{count:,} {singular if count == 1 else many or f'{singular}s'}"


def parse_quantity(text: str, kind: Kind, field: str, minimum: float, most: float) -> float:
    """Parse a quantity; return a plain number, bytes, days, or a share from 0 to 1.

    Raises:
        BadRequest: the text is invalid, out of bounds, or has a unit of another kind.
    """
    match = _FORM.fullmatch(text.strip())
    unit = None if match is None else _UNITS[kind].get(match[2].lower())
    if match is None or unit is None:
        raise BadRequest(
            f"{field}: {text[:40]!r} is not a {_NAMES[kind]}; examples: {_EXAMPLES[kind]}"
        )
    value = float(match[1].replace(",", "").replace("_", "")) * unit
    if not minimum <= value <= most:
        bounds = f"{format_quantity(minimum, kind)} to {format_quantity(most, kind)}"
        raise BadRequest(f"{field}: must be {bounds}; got {text}")
    return value


def format_quantity(value: float, kind: Kind) -> str:
    """Return a quantity in a format that `parse_quantity` accepts."""
    if kind == "share":
        return f"{value * 100:g}%"
    if kind == "days":
        return f"{value:g}d"
    if kind == "bytes":
        return format_bytes(value)
    for letter, size in (("t", 1e12), ("b", 1e9), ("m", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def format_bytes(value: float) -> str:
    """Return a number of bytes with a decimal unit: ``1.5TB``."""
    for letter, size in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("K", 1e3)):
        if value >= size:
            return f"{value / size:.4g}{letter}B"
    return f"{value:g}B"
