"""Ids: the grammar that keeps them harmless, and the ids that we make ourselves."""

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
def test_parse_id_of_the_grammar_is_returned(name: str) -> None:
    """Letters, digits, underscore and hyphen, up to 64 of them."""
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
        "\u0661",
        "a\x00",
        "a/b",
    ],  # digits of another script
)
def test_parse_id_outside_the_grammar_is_refused_by_name(text: str) -> None:
    """Nothing that means something in a key of any store gets through."""
    with pytest.raises(BadRequest, match="chat: must be 1 to 64 characters"):
        ids.parse_id(text, "chat")


@given(st.text(max_size=70))
def test_parse_id_agrees_with_the_pattern_on_the_wire(text: str) -> None:
    """The frames' types and the parser accept the same ids."""
    try:
        ids.parse_id(text, "chat")
    except BadRequest:
        is_taken = False
    else:
        is_taken = True

    assert is_taken == (re.search(ids.ID_PATTERN, text) is not None)


@given(pairs)
def test_direct_chat_id_is_the_same_for_both(pair: tuple[str, str]) -> None:
    """Two devices cannot create the chat of two users twice, whichever user opens it."""
    a, b = map(UserId, pair)

    chat = ids.direct_chat_id(a, b)

    assert chat == ids.direct_chat_id(b, a)
    assert ids.parse_id(chat, "chat") == chat
    assert chat.startswith(ids.DIRECT_PREFIX)


@given(pairs, pairs)
def test_direct_chat_id_of_other_users_is_another(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    """No two pairs share a chat, however their names run together."""
    first, second = (ids.direct_chat_id(*map(UserId, pair)) for pair in (one, other))

    assert (first == second) == (sorted(one) == sorted(other))


@pytest.mark.parametrize(
    ("one", "other"), [(("a", "bc"), ("ab", "c")), (("a", "b-c"), ("a-b", "c"))]
)
def test_derived_chat_id_does_not_run_creator_and_ref_together(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    """Another creator or another ref is another group."""
    first, second = (ids.derived_chat_id(UserId(user), Ref(ref)) for user, ref in (one, other))

    assert first != second


@given(names, names)
def test_derived_chat_id_is_an_id_and_stays(creator: str, ref: str) -> None:
    """A retry finds the same group, and never a direct chat."""
    chat = ids.derived_chat_id(UserId(creator), Ref(ref))

    assert chat == ids.derived_chat_id(UserId(creator), Ref(ref))
    assert ids.parse_id(chat, "chat") == chat
    assert not chat.startswith(ids.DIRECT_PREFIX)


def test_mid_source_never_gives_an_id_twice() -> None:
    """Two sources, as two gateways have them, over several bursts."""
    sources = [MidSource(), MidSource()]

    mids = [source.next() for _ in range(5_000) for source in sources]

    assert len(set(mids)) == len(mids)


def test_mid_source_ids_are_ulids() -> None:
    """26 characters that any ULID library reads, and an id by our grammar."""
    source = MidSource()

    for _ in range(1_100):
        mid = source.next()
        assert str(ULID.from_str(mid)) == ids.parse_id(mid, "mid") == mid


def test_mid_source_ids_rise_within_a_burst_and_by_time_between_bursts() -> None:
    """They sort in the order in which they were given, to the burst of 1,024."""
    source = MidSource()

    mids = [source.next() for _ in range(4 * 1024)]

    bursts = [mids[start : start + 1024] for start in range(0, len(mids), 1024)]
    for burst in bursts:
        assert burst == sorted(burst)
    times = [mid[:10] for mid in mids]  # a ULID's first ten characters are its milliseconds
    assert times == sorted(times)
