"""Ids: the grammar of valid ids, and the ids that the server generates."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ulid import ULID

from chatserver.domain import ids
from chatserver.domain.ids import MidSource, Ref, UserId
from chatserver.errors import BadRequest

names = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
pairs = st.tuples(names, names)


@given(names)
def test_parse_id_of_a_valid_id_returns_it(name: str) -> None:
    """Valid ids have up to 64 letters, digits, underscores and hyphens."""
    assert ids.parse_id(name, "chat") == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a" * 65,
        "a b",
        "a\n",
        "\na",
        "a:b",
        "a#b",
        "{a}",
        "a.b",
        "ä",
        "\u0661",  # a digit of another script
        "a\x00",
        "a/b",
    ],
)
def test_parse_id_of_an_invalid_id_is_refused_with_the_field(text: str) -> None:
    """Ids cannot contain characters that are special in the keys of a store."""
    with pytest.raises(BadRequest, match="chat: must be 1 to 64 characters"):
        ids.parse_id(text, "chat")


@given(st.text(max_size=70))
def test_parse_id_agrees_with_the_pattern_of_frames(text: str) -> None:
    """The frames' types and the parser accept the same ids."""
    try:
        ids.parse_id(text, "chat")
    except BadRequest:
        is_accepted = False
    else:
        is_accepted = True

    assert is_accepted == (re.search(ids.ID_PATTERN, text) is not None)


@given(pairs)
def test_direct_chat_id_is_the_same_for_both_users(pair: tuple[str, str]) -> None:
    """The chat of two users cannot be created twice, even if both open it."""
    a, b = map(UserId, pair)

    chat = ids.direct_chat_id(a, b)

    assert chat == ids.direct_chat_id(b, a)
    assert ids.parse_id(chat, "chat") == chat
    assert chat.startswith(ids.DIRECT_PREFIX)


@given(pairs, pairs)
def test_direct_chat_id_of_other_users_differs(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    """No two pairs share a chat, even if their concatenated names are equal."""
    first, second = (ids.direct_chat_id(*map(UserId, pair)) for pair in (one, other))

    assert (first == second) == (sorted(one) == sorted(other))


@pytest.mark.parametrize(
    ("one", "other"), [(("a", "bc"), ("ab", "c")), (("a", "b-c"), ("a-b", "c"))]
)
def test_derived_chat_id_separates_creator_and_ref(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    """Another creator or another ref is another group."""
    first, second = (ids.derived_chat_id(UserId(user), Ref(ref)) for user, ref in (one, other))

    assert first != second


@given(names, names)
def test_derived_chat_id_is_valid_and_deterministic(creator: str, ref: str) -> None:
    """A retry finds the same group, and never a direct chat."""
    chat = ids.derived_chat_id(UserId(creator), Ref(ref))

    assert chat == ids.derived_chat_id(UserId(creator), Ref(ref))
    assert ids.parse_id(chat, "chat") == chat
    assert not chat.startswith(ids.DIRECT_PREFIX)


def test_mid_sources_never_return_an_id_twice() -> None:
    """Two sources are used, as in two gateways, over several bursts."""
    sources = [MidSource(), MidSource()]

    mids = [source.next() for _ in range(5_000) for source in sources]

    assert len(set(mids)) == len(mids)


def test_mid_source_ids_are_ulids() -> None:
    """Any ULID library can read them, and they are valid ids."""
    source = MidSource()

    for _ in range(1_100):
        mid = source.next()
        assert str(ULID.from_str(mid)) == ids.parse_id(mid, "mid") == mid


def test_mid_source_ids_increase_within_a_burst_and_by_time_between_bursts() -> None:
    """Within each burst of 1,024 ids, they sort in the order of creation."""
    source = MidSource()

    mids = [source.next() for _ in range(4 * 1024)]

    bursts = [mids[start : start + 1024] for start in range(0, len(mids), 1024)]
    for burst in bursts:
        assert burst == sorted(burst)
    times = [mid[:10] for mid in mids]  # a ULID's first ten characters are its milliseconds
    assert times == sorted(times)
