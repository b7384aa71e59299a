"""Keys of all stores (security.md 7): two different things never share one.

The builders are found by their signatures, so that a new one is tested as soon as it exists. Ids
are of the grammar that the edge enforces; that it does, is for tests/unit/domain/test_ids.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain import ids
from chatserver.errors import BadRequest
from chatserver.hot.redis.keys import Keys
from chatserver.warm.chats import records

# Few letters, so that ids are often prefixes of each other and often equal.
close_ids = st.text("a-_p0", min_size=1, max_size=4)
BUILDERS = {
    name: [parameter.annotation for parameter in inspect.signature(method).parameters.values()][1:]
    for name, method in inspect.getmembers(Keys, inspect.isfunction)
    if not name.startswith("_") and inspect.signature(method).return_annotation == "str"
}
_ROWS = {
    name: function
    for name, function in inspect.getmembers(records, inspect.isfunction)
    if name.endswith("_key") and function.__module__ == records.__name__
}


def build(keys: Keys, name: str, words: list[str]) -> tuple[str, tuple[object, ...]]:
    """Return a key, and what it stands for."""
    kinds = BUILDERS[name]
    given_: list[Any] = [
        len(word) if kind == "int" else word for kind, word in zip(kinds, words, strict=False)
    ]
    return getattr(keys, name)(*given_), (name, *given_)


def test_section_7_builders_of_redis_keys_are_found() -> None:
    """Each takes ids and numbers of partitions, nothing that could be any text."""
    known = {"ChatId", "UserId", "Ref", "GatewayId", "int", "str"}
    texts = {name for name, kinds in BUILDERS.items() if "str" in kinds}

    assert len(BUILDERS) > 30
    assert {kind for kinds in BUILDERS.values() for kind in kinds} <= known
    # A word of ours, an address, an id of a file, a network or device; a day; a digest.
    costs = {"cost_units", "cost_reads", "cost_writes", "cost_flushes"}
    assert texts == {"lease", "limit", "file", "login_attempts", "preview"} | costs


@given(
    st.integers(1, 1024),
    st.sampled_from(sorted(BUILDERS)),
    st.sampled_from(sorted(BUILDERS)),
    st.lists(close_ids, min_size=3, max_size=3),
    st.lists(close_ids, min_size=3, max_size=3),
)
def test_section_7_redis_keys_of_different_things_differ(
    partitions: int, one: str, other: str, first: list[str], second: list[str]
) -> None:
    """Equal keys are of the same kind and the same ids, whatever builder there is."""
    keys = Keys(partitions)

    (key, thing), (other_key, other_thing) = build(keys, one, first), build(keys, other, second)

    assert (key == other_key) == (thing == other_thing)


@given(st.text(max_size=12))
def test_section_7_text_that_is_no_id_makes_no_key(text: str) -> None:
    """Text that could end a hash tag or name another user or chat is refused at the edge."""
    try:
        name = ids.parse_id(text, "user")
    except BadRequest:
        return

    key = Keys(64).inbox(ids.UserId(name))

    assert key.count("{") == key.count("}") == 1
    assert key.split(":") == [key.partition(":")[0], "inbox", name]


@pytest.mark.parametrize("character", [*"#{}:*?[]\\/.\"' \t\r\n\0", "\u202e", "é", "\ud800", ""])
def test_section_7_character_that_means_something_is_in_no_id(character: str) -> None:
    """Of Redis, DynamoDB, S3, paths, logs or headers."""
    with pytest.raises(BadRequest):
        ids.parse_id(f"a{character}" if character else "", "user")


Builder = Callable[..., str]


@given(
    st.sampled_from(sorted(_ROWS)),
    st.sampled_from(sorted(_ROWS)),
    st.lists(close_ids, min_size=3, max_size=3),
    st.lists(close_ids, min_size=3, max_size=3),
)
def test_section_7_rows_of_different_things_differ(
    one: str, other: str, first: list[str], second: list[str]
) -> None:
    """The same for keys of the directory: their words are closed by a delimiter."""

    def row(name: str, words: list[str]) -> tuple[str, tuple[str, ...]]:
        builder: Builder = _ROWS[name]
        used = words[: len(inspect.signature(builder).parameters)]
        return builder(*used), (name, *used)

    (key, thing), (other_key, other_thing) = row(one, first), row(other, second)

    assert (str(key) == str(other_key)) == (thing == other_thing)
