"""Sizes and capacity units of items, by the rules of AWS."""

from __future__ import annotations

from typing import Any

import pytest

from chatserver.dev.aws_limits.item_sizes import (
    Item,
    count_bytes,
    count_read_units,
    count_write_units,
)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ({"S": "abc"}, 3),
        ({"S": "é"}, 2),
        ({"N": "7"}, 2),
        ({"N": "1234"}, 3),
        ({"N": "-1234"}, 4),
        ({"N": "1000000"}, 2),
        ({"B": "YWJj"}, 3),
        ({"B": "YQ=="}, 1),
        ({"BOOL": True}, 1),
        ({"NULL": True}, 1),
        ({"SS": ["a", "bc"]}, 3),
        ({"NS": ["1", "22"]}, 4),
        ({"L": []}, 3),
        ({"L": [{"S": "ab"}]}, 6),
        ({"M": {"k": {"S": "ab"}}}, 7),
    ],
)
def test_size_is_the_sum_of_names_and_values(value: dict[str, Any], size: int) -> None:
    """See the Developer Guide, *DynamoDB item sizes and formats*."""
    assert count_bytes({"name": value}) == 4 + size


def make_item(size: int) -> Item:
    """Return an item of this size."""
    return {"k": {"S": "x" * (size - 1)}}


@pytest.mark.parametrize(
    ("sizes", "units"), [((1,), 1), ((1024,), 1), ((1025,), 2), ((10, 3000), 3), ((), 1)]
)
def test_write_costs_a_unit_per_kilobyte_of_the_larger_item(
    sizes: tuple[int, ...], units: int
) -> None:
    """The item before or after the write counts; a write of no item costs one unit."""
    assert count_write_units(None, *map(make_item, sizes)) == units


@pytest.mark.parametrize(
    ("size", "consistent", "eventual"), [(None, 1, 0.5), (4096, 1, 0.5), (4097, 2, 1.0)]
)
def test_read_costs_a_unit_per_four_kilobytes_and_half_if_eventual(
    size: int | None, consistent: float, eventual: float
) -> None:
    """An item that does not exist counts as a small one."""
    item = None if size is None else make_item(size)

    assert count_read_units(item, is_consistent=True) == consistent
    assert count_read_units(item, is_consistent=False) == eventual
