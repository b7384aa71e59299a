"""Loading of users: all chats and marks, in pages of the directory."""

from __future__ import annotations

import pytest

from chatserver.domain.ids import ChatId, Seq
from chatserver.domain.inboxes import ListedChat
from chatserver.warm.chats.directory import Membership
from chatserver.warm.chats.records import Chat, Member
from tests.unit.service.builders import ALICE, CAROL
from tests.unit.service.chats.chats_world import Hot, Warm, make_user_loader


def listed(chat: str, read: int) -> ListedChat:
    """A chat that is no large one, as the directory lists it."""
    return ListedChat(ChatId(chat), Seq(read), Seq(read + 1), None, 1)


def memberships(count: int) -> list[Membership]:
    """So many chats of a user."""
    return [
        Membership(
            Chat(f"c{n}", "group", None, 1, 0), Member(f"c{n}", ALICE, "member", 0, n, n + 1)
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, 100, 250])
async def test_load_user_fills_the_box_with_all_chats_and_marks(count: int) -> None:
    """However many pages the directory needs for it."""
    warm, hot = Warm(memberships=memberships(count)), Hot()

    await make_user_loader(warm, hot).load_user(CAROL)

    assert hot.boxes == [(CAROL, [listed(f"c{n}", n) for n in range(count)], "E1")]
    assert CAROL in warm.users


async def test_load_user_with_very_many_chats_loads_all_of_them() -> None:
    """The list never ends silently: membership is bounded where users join, not here."""
    warm, hot = Warm(memberships=memberships(4_150)), Hot()

    await make_user_loader(warm, hot).load_user(ALICE)

    ((_, chats, _),) = hot.boxes
    assert len(chats) == 4_150
