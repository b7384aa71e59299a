"""Attribute getters for DynamoDB items with the keys PK and SK, with type checks."""

from __future__ import annotations

from chatserver.errors import CorruptData
from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.tables import DirectoryField as Field


def get_text(item: Item, name: str) -> str:
    """Return an attribute of type S. Raises CorruptData."""
    try:
        text: str = item[name]["S"]
    except KeyError as exc:
        raise CorruptData(
            f"DynamoDB item {format_key(item)}: attribute {name} is missing or not a string"
        ) from exc
    return text


def find_text(item: Item, name: str) -> str | None:
    """Return an attribute of type S, or None if it is absent. Raises CorruptData."""
    return get_text(item, name) if name in item else None


def get_number(item: Item, name: str) -> int:
    """Return an integer attribute. Raises CorruptData."""
    try:
        return int(item[name]["N"])
    except (KeyError, ValueError) as exc:
        raise CorruptData(
            f"DynamoDB item {format_key(item)}: attribute {name} is missing or not an integer"
        ) from exc


def find_number(item: Item, name: str) -> int | None:
    """Return an integer attribute, or None if it is absent. Raises CorruptData."""
    return get_number(item, name) if name in item else None


def find_texts(item: Item, name: str) -> tuple[str, ...]:
    """Return an attribute of type L that contains strings; empty if it is absent."""
    return tuple(str(value["S"]) for value in item.get(name, {}).get("L", ()))


def format_key(item: Item) -> str:
    """Return the key for an error message. Other attributes may contain secrets."""
    partition, sort = (item.get(name, {}).get("S") for name in (Field.PK, Field.SK))
    return f"{partition}/{sort}"
