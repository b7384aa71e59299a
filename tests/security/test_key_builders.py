"""Key builders of all stores (section 7): different entities never have the same key.

The builders are found by their signatures, so that new ones are tested too. Ids follow the grammar
that is validated at the edge (tests/unit/domain/test_ids.py).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain import ids
from chatserver.errors import BadRequest
from chatserver.hot.redis.keys import Keys
from chatserver.warm.chats import directory_items
from tests.support.key_classes import iter_key_builders

# Few letters, so that ids are often equal or prefixes of each other.
close_ids = st.text("a-_p0", min_size=1, max_size=4)
BUILDERS = {
    f"{kind.__name__}.{name}": (kind, [each.annotation for each in signature.parameters.values()])
    for kind, name, signature in iter_key_builders()
}
_ROWS = {
    name: function
    for name, function in inspect.getmembers(directory_items, inspect.isfunction)
    if re.fullmatch(r"[a-z]\w*_key", name) and function.__module__ == directory_items.__name__
}


def build(partitions: int, name: str, ids_: list[str]) -> tuple[str, tuple[object, ...]]:
    """Return a key, and its builder with the arguments."""
    of_class, kinds = BUILDERS[name]
    given_: list[Any] = [
        len(id_) if kind == "int" else id_ for kind, id_ in zip(kinds, ids_, strict=False)
    ]
    return getattr(of_class(partitions), name.partition(".")[2])(*given_), (name, *given_)


def test_section_7_redis_key_builders_take_only_ids_and_numbers() -> None:
    """The listed exceptions use internal names, addresses, file ids, networks, days or digests."""
    known = {"ChatId", "UserId", "Ref", "GatewayId", "int", "str"}
    texts = {name for name, (_, kinds) in BUILDERS.items() if "str" in kinds}

    assert len(BUILDERS) > 30
    assert {kind for _, kinds in BUILDERS.values() for kind in kinds} <= known
    core = ("lease", "limit", "login_attempts")
    costs = ("cost_units", "cost_reads", "cost_writes", "cost_flushes")
    of_features = {"AttachmentKeys.file", "LinkPreviewKeys.preview"}
    assert texts == {f"Keys.{name}" for name in core + costs} | of_features


@given(
    st.integers(1, 1024),
    st.sampled_from(sorted(BUILDERS)),
    st.sampled_from(sorted(BUILDERS)),
    st.lists(close_ids, min_size=3, max_size=3),
    st.lists(close_ids, min_size=3, max_size=3),
)
def test_section_7_redis_key_builders_are_injective(
    partitions: int, one: str, other: str, first: list[str], second: list[str]
) -> None:
    """Two keys are equal only if builder and arguments are equal."""
    key, source = build(partitions, one, first)
    other_key, other_source = build(partitions, other, second)

    assert (key == other_key) == (source == other_source)


@given(st.text(max_size=12))
def test_section_7_invalid_id_is_refused_before_building_a_key(text: str) -> None:
    """A valid id cannot close a hash tag or add a part to a key."""
    try:
        name = ids.parse_id(text, "user")
    except BadRequest:
        return

    key = Keys(64).inbox(ids.UserId(name))

    assert key.count("{") == key.count("}") == 1
    assert key.split(":") == [key.partition(":")[0], "inbox", name]


@pytest.mark.parametrize("character", [*"#{}:*?[]\\/.\"' \t\r\n\0", "\u202e", "é", "\ud800", ""])
def test_section_7_id_with_special_character_is_refused(character: str) -> None:
    """Tested are characters with a meaning in Redis, DynamoDB, S3, paths, logs or headers."""
    with pytest.raises(BadRequest):
        ids.parse_id(f"a{character}" if character else "", "user")


Builder = Callable[..., str]


@given(
    st.sampled_from(sorted(_ROWS)),
    st.sampled_from(sorted(_ROWS)),
    st.lists(close_ids, min_size=3, max_size=3),
    st.lists(close_ids, min_size=3, max_size=3),
)
def test_section_7_directory_key_builders_are_injective(
    one: str, other: str, first: list[str], second: list[str]
) -> None:
    """Parts of these keys end with a delimiter."""

    def row(name: str, ids_: list[str]) -> tuple[str, tuple[str, ...]]:
        builder: Builder = _ROWS[name]
        used = ids_[: len(inspect.signature(builder).parameters)]
        return builder(*used), (name, *used)

    (key, source), (other_key, other_source) = row(one, first), row(other, second)

    assert (str(key) == str(other_key)) == (source == other_source)
