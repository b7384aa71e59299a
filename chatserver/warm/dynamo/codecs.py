"""Item codecs from declared fields.

A `Codec` converts the items of one kind to a dataclass or NamedTuple and back. The types of its
fields determine the types of the attributes:

    BAN = Codec(Ban, "c#{chat}", "ban#{user}", by=F.AUTHOR, created_ms=F.CREATED)

The first two texts are the templates of `PK` and `SK`. ``{seq:020d}`` is a number with a fixed
width. Parts of a key that are not fields of the record are arguments of `encode` and `key`. Every
field of the record must be a part of the key, have an attribute, or be one of `omitted`, so that no
field is lost by mistake.
"""

from __future__ import annotations

import re
import string
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from chatserver.errors import BadRequest, CorruptData
from chatserver.warm.dynamo.client import Item
from chatserver.warm.dynamo.conditions import Value, decode_bytes, encode_value
from chatserver.warm.dynamo.item_attributes import format_key
from chatserver.warm.schema.tables import DirectoryField as Field

T = TypeVar("T")
_Read = Callable[[Mapping[str, Any]], Any]
_REQUIRED: Final = object()
_UNIONS: Final = (types.UnionType, typing.Union)


class StoredField(NamedTuple):
    """Storage options of a field.

    If the attribute is absent, the field's value is `absent`; a field with that value is not
    stored. `dump` converts a value before it is stored, and `load` converts it back. `load` raises
    ValueError or BadRequest if the stored value is invalid.
    """

    attribute: str
    absent: Any = _REQUIRED
    load: Callable[[Any], Any] | None = None
    dump: Callable[[Any], Value] | None = None


class _Field(NamedTuple):
    name: str
    attribute: str
    absent: Any
    read: _Read
    dump: Callable[[Any], Value] | None


class Codec(Generic[T]):
    """Encodes and decodes the items of one kind, in a table with keys `PK` and `SK`."""

    def __init__(
        self,
        record: type[T],
        partition: str,
        sort: str,
        /,
        omitted: Collection[str] = (),
        **fields: str | StoredField,
    ) -> None:
        self._record = record
        hints = typing.get_type_hints(record)
        self._templates = partition, sort
        self._patterns = _compile(partition), _compile(sort)
        self._key_fields = {
            name: int if _find_type(hints[name]) is int else str
            for pattern in self._patterns
            for name in pattern.groupindex
            if name in hints
        }
        self._fields = [
            _make_field(name, StoredField(field) if isinstance(field, str) else field, hints[name])
            for name, field in fields.items()
        ]

        if forgotten := hints.keys() - self._key_fields.keys() - fields.keys() - set(omitted):
            raise TypeError(f"{record.__name__}: {sorted(forgotten)}: not stored")

    def key(self, **parts: str | int) -> tuple[str, str]:
        """Return the key of an item."""
        partition, sort = self._templates
        return partition.format_map(parts), sort.format_map(parts)

    def encode(self, record: T, **parts: str | int) -> Item:
        """Return the item of a record. `parts` are parts of the key that are not in the record."""
        parts |= {name: getattr(record, name) for name in self._key_fields}
        partition, sort = self.key(**parts)
        item: Item = {Field.PK: {"S": partition}, Field.SK: {"S": sort}}
        for name, attribute, absent, _, dump in self._fields:
            value = getattr(record, name)
            if value != absent:
                item[attribute] = encode_value(value if dump is None else dump(value))
        return item

    def decode(self, item: Item) -> T:
        """Return the record of an item.

        Raises:
            CorruptData: an attribute is missing or invalid. The message contains only the key.
        """
        values: dict[str, Any] = self._parse_key(item) if self._key_fields else {}
        for name, attribute, absent, read, _ in self._fields:
            stored = item.get(attribute)
            if stored is None and absent is not _REQUIRED:
                values[name] = absent
                continue
            try:
                values[name] = read(stored or {})
            except (KeyError, TypeError, ValueError, BadRequest):
                raise CorruptData(
                    f"DynamoDB item {format_key(item)}: attribute {attribute} is missing or invalid"
                ) from None
        return self._record(**values)

    def _parse_key(self, item: Item) -> dict[str, Any]:
        parts: dict[str, str] = {}
        for attribute, pattern in zip((Field.PK, Field.SK), self._patterns, strict=True):
            match = pattern.fullmatch(item.get(attribute, {}).get("S", ""))
            if match is None:
                raise CorruptData(f"DynamoDB item {format_key(item)}: invalid {attribute}")
            parts |= match.groupdict()
        try:
            return {name: convert(parts[name]) for name, convert in self._key_fields.items()}
        except ValueError:
            raise CorruptData(f"DynamoDB item {format_key(item)}: invalid key") from None


def _compile(template: str) -> re.Pattern[str]:
    """Return the pattern of a key template. Parts of keys contain no ``#``."""
    text = ""
    for literal, name, spec, _ in string.Formatter().parse(template):
        text += re.escape(literal)
        if name:
            part = rf"\d{{{int(spec[:-1])}}}" if spec else "[^#]+"
            text += f"(?P<{name}>{part})"
    return re.compile(text)


def _make_field(name: str, stored: StoredField, hint: Any) -> _Field:
    kinds = typing.get_args(hint)
    is_optional = typing.get_origin(hint) in _UNIONS and type(None) in kinds
    if is_optional:
        (hint,) = (kind for kind in kinds if kind is not type(None))
    absent = None if is_optional and stored.absent is _REQUIRED else stored.absent
    read = _get_reader(hint) if stored.load is None else _chain(stored.load)
    return _Field(name, stored.attribute, absent, read, stored.dump)


def _chain(load: Callable[[Any], Any]) -> _Read:
    """Return a reader that applies `load` to a value that is not encrypted."""

    def read(stored: Mapping[str, Any]) -> Any:
        ((kind, value),) = stored.items()
        if kind == "B":
            raise ValueError("encrypted")
        return load(int(value) if kind == "N" else value)

    return read


def _find_type(hint: Any) -> Any:
    """Return the type that a `NewType` stands for."""
    while isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    return hint


def _get_reader(hint: Any) -> _Read:
    """Return the function that reads a value of the declared type."""
    hint = _find_type(hint)
    origin = typing.get_origin(hint)
    if origin is Literal:
        return _read_choice(frozenset(typing.get_args(hint)))
    reader = _READERS.get(origin or hint)
    if reader is None:
        raise TypeError(f"{hint}: no attribute type; use `load` and `dump`")
    return reader


def _read_choice(choices: frozenset[str]) -> _Read:
    def read(stored: Mapping[str, Any]) -> str:
        text: str = stored["S"]
        if text not in choices:
            raise ValueError(text)
        return text

    return read


_READERS: Final[dict[Any, _Read]] = {
    str: lambda stored: stored["S"],
    int: lambda stored: int(stored["N"]),
    bool: lambda stored: stored["BOOL"],
    bytes: decode_bytes,
    tuple: lambda stored: tuple(value["S"] for value in stored["L"]),
    frozenset: lambda stored: frozenset(stored["SS"]),
    Mapping: lambda stored: {name: value["S"] for name, value in stored["M"].items()},
    dict: lambda stored: {name: value["S"] for name, value in stored["M"].items()},
}
