"""Creation of direct chats and groups: retries, limits and unknown users."""

from __future__ import annotations

import pytest

from chatserver.domain.ids import Ref, UserId, direct_chat_id
from chatserver.errors import BadRequest, NotFound
from chatserver.protocol import frames
from tests.unit.service.builders import ALICE, BOB, CAROL
from tests.unit.service.chats.chats_world import Hot, Warm, make_creator


async def test_create_chat_again_after_changes_returns_the_current_chat() -> None:
    """Members may have left since the first request."""
    info = await make_creator(Warm(version=3), Hot()).create_chat(ALICE, Ref("r1"), [BOB], "X")

    assert (info.name, info.members, info.count) == ("Team", [ALICE, BOB], 2)
    assert (info.roles, info.history) == ({ALICE: "owner"}, "all")


async def test_create_chat_again_by_a_former_member_is_not_found() -> None:
    """A former member must not get the list of members."""
    warm = Warm(version=3, users={ALICE, BOB, CAROL})

    with pytest.raises(NotFound):
        await make_creator(warm, Hot()).create_chat(CAROL, Ref("r1"), [ALICE], "X")


@pytest.mark.parametrize(("user", "other"), [(ALICE, BOB), (BOB, ALICE)])
async def test_open_direct_by_either_user_is_the_same_chat(user: UserId, other: UserId) -> None:
    """Id, record and response do not depend on which user opens it first."""
    warm, hot = Warm(), Hot()

    info = await make_creator(warm, hot).open_direct(user, other)

    chat = direct_chat_id(ALICE, BOB)
    assert info == frames.ChatInfo(chat, "direct", [ALICE, BOB])
    assert warm.calls[0] == ("create_direct", chat, user, other)
    assert hot.chats[0][0] == chat


async def test_open_direct_with_an_unknown_user_creates_nothing() -> None:
    """The error names the unknown user."""
    warm, hot = Warm(), Hot()

    with pytest.raises(NotFound, match="carol: there is no such user"):
        await make_creator(warm, hot).open_direct(ALICE, CAROL)

    assert warm.calls == hot.chats == []


async def test_create_chat_again_under_its_ref_is_the_same_group() -> None:
    """A retry does not create a second group."""
    warm, hot = Warm(), Hot()
    creator = make_creator(warm, hot)

    first = await creator.create_chat(ALICE, Ref("r1"), [BOB], "Team")
    again = await creator.create_chat(ALICE, Ref("r1"), [BOB], "Team")
    other = await creator.create_chat(ALICE, Ref("r2"), [BOB], "Team")

    assert first == again
    assert other.chat != first.chat
    assert first == frames.ChatInfo(
        first.chat, "group", [ALICE, BOB], "Team", count=2, roles={ALICE: "owner"}
    )


async def test_create_chat_with_too_many_members_is_refused() -> None:
    """The error states the limit, and nothing is created."""
    warm, hot = Warm(), Hot()
    creator = make_creator(warm, hot, members_max=2)

    assert await creator.create_chat(ALICE, Ref("r1"), [BOB], None)
    with pytest.raises(BadRequest, match="at most 2"):
        await creator.create_chat(ALICE, Ref("r2"), [BOB, CAROL], None)
    assert len(hot.chats) == 1


async def test_create_chat_with_an_unknown_member_names_it() -> None:
    """The caller can correct the request."""
    warm, hot = Warm(), Hot()

    with pytest.raises(NotFound, match="carol: there is no such user"):
        await make_creator(warm, hot).create_chat(ALICE, Ref("r1"), [BOB, CAROL], None)

    assert warm.calls == []
