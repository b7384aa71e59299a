"""Attributes are read with type checks, and errors name the item but no value."""

from __future__ import annotations

import pytest

from chatserver.errors import CorruptData
from chatserver.warm.dynamo.client import Item
from chatserver.warm.dynamo.item_attributes import find_number, find_text, get_number, get_text

ITEM: Item = {
    "PK": {"S": "u#ann"},
    "SK": {"S": "device#1"},
    "name": {"S": "phone"},
    "seen": {"N": "7"},
    "half": {"N": "0.5"},
}


def test_attributes_of_the_expected_type_are_returned() -> None:
    assert (get_text(ITEM, "name"), get_number(ITEM, "seen")) == ("phone", 7)
    assert (find_text(ITEM, "absent"), find_number(ITEM, "absent")) == (None, None)


@pytest.mark.parametrize(
    ("get", "name"),
    [
        (get_text, "absent"),
        (get_text, "seen"),
        (find_text, "seen"),
        (get_number, "absent"),
        (get_number, "name"),
        (find_number, "half"),
    ],
)
def test_attribute_of_another_type_is_an_error_that_names_the_item(get: object, name: str) -> None:
    with pytest.raises(CorruptData) as error:
        get(ITEM, name)  # type: ignore[operator]  # one of the four functions

    assert "u#ann/device#1" in error.value.message
    assert f"attribute {name} is missing or not" in error.value.message
    assert "table directory" not in error.value.message
    assert "phone" not in error.value.message
