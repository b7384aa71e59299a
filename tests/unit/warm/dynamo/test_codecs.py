"""Item codecs: round trips, absent attributes and invalid items."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, NewType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.errors import CorruptData
from chatserver.warm.dynamo.codecs import Codec, StoredField

UserId = NewType("UserId", str)


@dataclasses.dataclass(frozen=True)
class Everything:
    """A record with a field of each supported type."""

    chat: str
    seq: int
    user: UserId
    text: str
    number: int
    flag: bool
    data: bytes
    kind: Literal["a", "b"]
    texts: tuple[str, ...]
    marks: frozenset[str]
    names: Mapping[str, str]
    owner: UserId | None
    level: int | None
    reason: str
    days: tuple[int, ...]


CODEC = Codec(
    Everything,
    "c#{chat}",
    "report#{seq:020d}#{user}",
    text="text",
    number="number",
    flag="flag",
    data="data",
    kind="kind",
    texts="texts",
    marks=StoredField("marks", absent=frozenset()),
    names="names",
    owner="owner",
    level="level",
    reason=StoredField("reason", absent=""),
    days=StoredField(
        "days",
        load=lambda text: tuple(map(int, text.split(","))),
        dump=lambda days: ",".join(map(str, days)),
    ),
)
IDS = st.text("ab-1", min_size=1, max_size=5)
RECORDS = st.builds(
    Everything,
    chat=IDS,
    seq=st.integers(0, 10**19),
    user=IDS,
    owner=st.none() | IDS,
    level=st.none() | st.integers(),
    days=st.lists(st.integers(0, 99), min_size=1, max_size=3).map(tuple),
)
EXAMPLE = Everything(
    "x", 7, UserId("bob"), "hi", 1, False, b"b", "a", ("t",), frozenset(), {}, None, None, "", (1,)
)


@given(RECORDS)
def test_record_round_trips(record: Everything) -> None:
    """Every value of the declared types is stored and read unchanged."""
    assert CODEC.decode(CODEC.encode(record)) == record


def test_absent_values_are_not_stored() -> None:
    """A field that may be None, or has a value for absence, has no attribute then."""
    item = CODEC.encode(EXAMPLE)

    assert item.keys() == {
        "PK", "SK", "text", "number", "flag", "data", "kind", "texts", "names", "days"
    }  # fmt: skip
    assert item["PK"] == {"S": "c#x"}
    assert item["SK"] == {"S": "report#00000000000000000007#bob"}
    assert CODEC.key(chat="x", seq=7, user="bob") == (item["PK"]["S"], item["SK"]["S"])


@pytest.mark.parametrize(
    ("attribute", "stored"),
    [
        ("text", None),
        ("text", {"N": "1"}),
        ("number", {"S": "secret"}),
        ("number", {"N": "secret"}),
        ("flag", {"S": "secret"}),
        ("kind", {"S": "secret"}),
        ("texts", {"L": [{"N": "1"}]}),
        ("level", {"S": "secret"}),
        ("days", {"S": "secret"}),
        ("SK", {"S": "report#7#bob"}),
        ("PK", {"S": "u#x"}),
    ],
)
def test_invalid_item_is_corrupt(attribute: str, stored: dict[str, Any] | None) -> None:
    """The error contains the key and the attribute's name, and no other value."""
    item: dict[str, Any] = CODEC.encode(EXAMPLE)
    item.pop(attribute, None)
    if stored is not None:
        item[attribute] = stored

    with pytest.raises(CorruptData) as caught:
        CODEC.decode(item)

    assert "secret" not in caught.value.message
    assert caught.value.__cause__ is None
    assert attribute in caught.value.message


class Pin(NamedTuple):
    """A record without the parts of its key."""

    seq: int
    at: int


def test_parts_of_the_key_need_not_be_fields() -> None:
    """They are arguments of `encode`."""
    codec = Codec(Pin, "c#{chat}", "pin#{seq:020d}#{chat}", at="at")

    item = codec.encode(Pin(3, 5), chat="x")

    assert item["SK"] == {"S": "pin#00000000000000000003#x"}
    assert codec.decode(item) == Pin(3, 5)


def test_type_without_an_attribute_type_is_refused() -> None:
    """This is detected when the codec is created."""

    class Bad(NamedTuple):
        at: float

    with pytest.raises(TypeError):
        Codec(Bad, "a", "b", at="at")


def test_forgotten_field_is_refused() -> None:
    """A new field of a record cannot be dropped by mistake."""
    with pytest.raises(TypeError, match="Pair: \\['second'\\]: not stored"):
        Codec(Pair, "p#{first}", "s")

    assert Codec(Pair, "p#{first}", "s", omitted=("second",)).key(first="x") == ("p#x", "s")


class Pair(NamedTuple):
    """A record with a field that is not in its key."""

    first: str
    second: str
