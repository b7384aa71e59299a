"""Attribute getters for DynamoDB items, with type checks."""

from __future__ import annotations

from chatserver.errors import CorruptData
from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.tables import DirectoryField as Field


def get_text(item: Item, name: str) -> str:
    """Return an attribute of type S. Raises CorruptData."""
    text = find_text(item, name)
    if text is None:
        raise CorruptData(
            f"DynamoDB item {_format_key(item)}: attribute {name} is missing or not a string"
        )
    return text


def find_text(item: Item, name: str) -> str | None:
    """Return an attribute of type S, or None."""
    value = item.get(name, {}).get("S")
    return None if value is None else str(value)


def get_number(item: Item, name: str) -> int:
    """Return an integer attribute. Raises CorruptData."""
    number = find_number(item, name)
    if number is None:
        raise CorruptData(
            f"DynamoDB item {_format_key(item)}: attribute {name} is missing or not an integer"
        )
    return number


def find_number(item: Item, name: str) -> int | None:
    """Return an integer attribute, or None if it is absent. Raises CorruptData."""
    if name not in item:
        return None
    try:
        return int(item[name]["N"])
    except (KeyError, ValueError) as exc:
        raise CorruptData(
            f"DynamoDB item {_format_key(item)}: attribute {name} is missing or not an integer"
        ) from exc


def find_texts(item: Item, name: str) -> tuple[str, ...]:
    """Return an attribute of type L that contains strings; empty if it is absent."""
    return tuple(str(value["S"]) for value in item.get(name, {}).get("L", ()))


def _format_key(item: Item) -> str:
    # Log only the key: other attributes may contain secrets.
    return f"{item.get(Field.PK)}/{item.get(Field.SK)}"
