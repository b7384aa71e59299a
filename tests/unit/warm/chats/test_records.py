"""The rows of the directory, as records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.errors import CorruptData
from chatserver.warm.chats.records import Chat, Member, User, describe_origin, is_ready


@pytest.mark.parametrize("name", [None, "Alice"])
def test_user_encoded_and_decoded_is_the_same(name: str | None) -> None:
    """A user survives the table, with or without a name."""
    user = User("alice", name, 1_795_000_000_123)

    assert User.decode(user.encode()) == user


@pytest.mark.parametrize("name", [None, "Climbing"])
def test_chat_encoded_and_decoded_is_the_same(name: str | None) -> None:
    """A chat survives the table, with or without a name."""
    chat = Chat("g-1", "group", name, 3, 1_795_000_000_123)

    assert Chat.decode(chat.encode("ready", "origin")) == chat


def test_member_encoded_and_decoded_is_the_same() -> None:
    """A membership survives the table with its marks."""
    member = Member("g-1", "alice", "admin", joined=4, read=9, received=11)

    assert Member.decode(member.encode()) == member


def test_keys_of_the_records_are_those_of_the_data_model() -> None:
    """The keys are what the queries rest on."""
    keys = [
        (item["PK"]["S"], item["SK"]["S"])
        for item in (
            User("a", None, 0).encode(),
            Chat("c", "direct", None, 1, 0).encode("ready", "o"),
            Member("c", "a", "member").encode(),
        )
    ]

    assert keys == [("u#a", "u#a"), ("c#c", "c#c"), ("c#c", "m#a")]


@pytest.mark.parametrize(("state", "expected"), [("forming", False), ("ready", True)])
def test_chat_row_exists_for_readers_only_when_ready(state: str, expected: bool) -> None:
    """A chat that is being written is not there yet."""
    assert is_ready(Chat("c", "group", None, 1, 0).encode(state, "o")) is expected


@pytest.mark.parametrize(
    "broken",
    [{"role": {"S": "king"}}, {"read": {"N": "many"}}, {"role": {"N": "1"}}, {"SK": {"S": "x#a"}}],
)
def test_member_row_that_is_none_is_corrupt_data(broken: dict[str, dict[str, str]]) -> None:
    """A row that breaks the model is named, not guessed at."""
    item = Member("c", "a", "member").encode() | broken

    with pytest.raises(CorruptData, match="directory"):
        Member.decode(item)


def test_chat_row_of_an_unknown_kind_is_corrupt_data() -> None:
    """A kind that this version does not know is not taken for another."""
    item = Chat("c", "group", None, 1, 0).encode("ready", "o") | {"kind": {"S": "forum"}}

    with pytest.raises(CorruptData, match="forum"):
        Chat.decode(item)


ROLES = st.dictionaries(
    st.text("ab_-", min_size=1, max_size=3), st.sampled_from(["owner", "member"]), max_size=4
)
REQUESTS = st.tuples(st.sampled_from(["direct", "group"]), st.none() | st.text(max_size=4), ROLES)


@given(REQUESTS, REQUESTS)
def test_origin_of_two_requests_is_the_same_only_if_they_are(one, other) -> None:  # type: ignore[no-untyped-def]  # hypothesis gives them
    """The digest distinguishes a retry from another request with the same id."""
    assert (describe_origin(*one) == describe_origin(*other)) == (one == other)


def test_origin_does_not_depend_on_the_order_of_members() -> None:
    """A retry may list the members in another order."""
    one = describe_origin("group", "x", {"a": "owner", "b": "member"})
    other = describe_origin("group", "x", {"b": "member", "a": "owner"})

    assert one == other
