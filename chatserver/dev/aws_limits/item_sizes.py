"""Item sizes in bytes and capacity units, as AWS counts them.

Source: *DynamoDB item sizes and formats* and *Read and write operations* in the Developer Guide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

Item = Mapping[str, Mapping[str, Any]]

WRITE_UNIT_BYTES: Final = 1024
READ_UNIT_BYTES: Final = 4096
TRANSACTION_FACTOR: Final = 2
_NESTED_BYTES: Final = 3  # overhead of a list or map; each element adds one byte


def count_bytes(item: Item) -> int:
    """Return the size of an item in bytes: its attribute names and values."""
    return sum(len(name.encode()) + _count_value(value) for name, value in item.items())


def count_write_units(*images: Item | None) -> int:
    """Return the units of a write, given the items before and after it; at least 1."""
    largest = max((count_bytes(image) for image in images if image is not None), default=0)
    return max(1, math.ceil(largest / WRITE_UNIT_BYTES))


def count_read_units(item: Item | None, *, is_consistent: bool) -> float:
    """Return the units of a read; eventually consistent reads cost half."""
    size = 0 if item is None else count_bytes(item)
    units = max(1, math.ceil(size / READ_UNIT_BYTES))
    return float(units) if is_consistent else units / 2


def _count_value(value: Mapping[str, Any]) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            return _count_number(content)
        case "B":
            return _count_base64(content)
        case "SS":
            return sum(len(element.encode()) for element in content)
        case "NS":
            return sum(map(_count_number, content))
        case "BS":
            return sum(map(_count_base64, content))
        case "L":
            return _NESTED_BYTES + sum(1 + _count_value(element) for element in content)
        case "M":
            return _NESTED_BYTES + len(content) + count_bytes(content)
        case _:  # BOOL, NULL
            return 1


def _count_number(text: str) -> int:
    """Return the size in bytes: one per two digits, plus one, plus one for a minus sign."""
    mantissa = text.lower().partition("e")[0].lstrip("+-").replace(".", "").strip("0")
    return math.ceil(len(mantissa) / 2) + 1 + text.startswith("-")


def _count_base64(text: str) -> int:
    return len(text) * 3 // 4 - text[-2:].count("=")
