"""Records of the directory: encoding and decoding of its items."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.errors import CorruptData
from chatserver.warm.chats.directory_items import (
    CHAT,
    MEMBER,
    USER,
    StoredChat,
    StoredMember,
    User,
    describe_origin,
    encode_chat,
    is_ready,
)


@pytest.mark.parametrize("name", [None, "Alice"])
def test_user_encoded_and_decoded_is_equal(name: str | None) -> None:
    """This holds with and without a name."""
    user = User("alice", name, 1_795_000_000_123)

    assert USER.decode(USER.encode(user)) == user


@pytest.mark.parametrize("name", [None, "Climbing"])
def test_chat_encoded_and_decoded_is_equal(name: str | None) -> None:
    """A chat may have no name."""
    chat = StoredChat("g-1", "group", name, 3, 1_795_000_000_123)

    assert CHAT.decode(encode_chat(chat, "ready", "origin")) == chat


def test_member_encoded_and_decoded_is_equal() -> None:
    """A membership keeps its role and marks."""
    member = StoredMember("g-1", "alice", "admin", joined=4, read=9, received=11)

    assert MEMBER.decode(MEMBER.encode(member)) == member


def test_keys_of_the_records_match_the_data_model() -> None:
    """Queries depend on these keys."""
    keys = [
        (item["PK"]["S"], item["SK"]["S"])
        for item in (
            USER.encode(User("a", None, 0)),
            encode_chat(StoredChat("c", "direct", None, 1, 0), "ready", "o"),
            MEMBER.encode(StoredMember("c", "a", "member")),
        )
    ]

    assert keys == [("u#a", "u#a"), ("c#c", "c#c"), ("c#c", "m#a")]


@pytest.mark.parametrize(("state", "expected"), [("forming", False), ("ready", True)])
def test_chat_row_is_readable_only_when_ready(state: str, expected: bool) -> None:
    """Readers ignore a chat that is still being written."""
    assert is_ready(encode_chat(StoredChat("c", "group", None, 1, 0), state, "o")) is expected


@pytest.mark.parametrize(
    "broken",
    [{"role": {"S": "king"}}, {"read": {"N": "many"}}, {"role": {"N": "1"}}, {"SK": {"S": "x#a"}}],
)
def test_invalid_member_row_is_corrupt_data(broken: dict[str, dict[str, str]]) -> None:
    """An invalid row is an error that names its key; nothing is guessed."""
    item = MEMBER.encode(StoredMember("c", "a", "member")) | broken

    with pytest.raises(CorruptData, match=r"c#c/[mx]#a"):
        MEMBER.decode(item)


def test_chat_row_of_an_unknown_kind_is_corrupt_data() -> None:
    """An unknown kind is not treated as another one."""
    item = encode_chat(StoredChat("c", "group", None, 1, 0), "ready", "o") | {
        "kind": {"S": "forum"}
    }

    with pytest.raises(CorruptData, match=r"c#c.*kind"):
        CHAT.decode(item)


ROLES = st.dictionaries(
    st.text("ab_-", min_size=1, max_size=3), st.sampled_from(["owner", "member"]), max_size=4
)
REQUESTS = st.tuples(st.sampled_from(["direct", "group"]), st.none() | st.text(max_size=4), ROLES)


@given(REQUESTS, REQUESTS)
def test_origin_of_two_requests_is_equal_only_for_equal_requests(one, other) -> None:  # type: ignore[no-untyped-def]  # the types are those of REQUESTS
    """The digest distinguishes a retry from another request with the same id."""
    assert (describe_origin(*one) == describe_origin(*other)) == (one == other)


def test_origin_does_not_depend_on_the_order_of_members() -> None:
    """A retry may list the members in another order."""
    one = describe_origin("group", "x", {"a": "owner", "b": "member"})
    other = describe_origin("group", "x", {"b": "member", "a": "owner"})

    assert one == other
