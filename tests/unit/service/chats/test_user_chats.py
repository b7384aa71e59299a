"""A user's chats: list pages and summaries, opening and creating."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import ChatId, Epoch, Seq, UserId
from chatserver.domain.inboxes import InboxState, UserChat
from chatserver.domain.messages import Audience
from chatserver.errors import BadRequest, TooLarge, Unavailable
from chatserver.protocol import codec, frames
from chatserver.service.chats.user_chats import MEMBERS_SHOWN_MAX, SNAPSHOT_CHATS, UserChats
from tests.unit.service.builders import ALICE, BOB, CAROL, CHAT, KnownAudiences, audience_of
from tests.unit.service.chats.fakes import Hot, Warm


def make_chats(hot: Hot, warm: Warm | None = None, *known: KnownAudiences) -> UserChats:
    """Return the use cases; by default CHAT is a group of alice and bob."""
    warm = warm or Warm()
    audiences = known[0] if known else KnownAudiences(audience_of(ALICE, BOB, name="Team"))
    return UserChats(
        inboxes=hot,
        audiences=audiences,
        log=hot,
        unread_counts=hot,
        older=warm,
        directory=warm,
        load_user=warm.load_user,
        devices=hot,
    )


def user_chat(chat: str, order: int, top: int = 0, read: int = 0) -> UserChat:
    """Return a chat in a chat list."""
    return UserChat(ChatId(chat), Seq(top), Seq(read), Seq(read), Seq(order))


# the list


@given(st.lists(st.integers(0, 6), max_size=30), st.integers(1, 8))
def test_chats_pages_contain_each_chat_once(orders: list[int], limit: int) -> None:
    """Newest activity comes first, also if many chats have the same position."""
    chats_in_list = [user_chat(f"a-{n}-b", order) for n, order in enumerate(orders)]
    chats_in_list.sort(key=lambda each: (-each.order, each.chat))
    known = KnownAudiences(*(audience_of(ALICE, BOB, chat=each.chat) for each in chats_in_list))
    chats = make_chats(Hot(chats_in_list), None, known)
    seen: list[str] = []
    after: str | None = None

    while True:
        page, after = asyncio.run(chats.list_page(ALICE, after, limit))
        seen += [line.chat for line in page]
        assert len(page) <= limit
        assert len(seen) <= len(chats_in_list), "the pages do not end"
        if after is None:
            break
        msgspec.convert({"id": 1, "after": after}, frames.Chats)  # the cursor is valid on the wire

    assert seen == [each.chat for each in chats_in_list]


async def test_chats_of_an_unloaded_user_are_loaded_first() -> None:
    """Redis has only some of their chats, so no list or summary is built from Redis alone."""
    for call in (
        lambda chats: chats.list_page(ALICE, None, 50),
        lambda chats: chats.get_summary(ALICE, ChatId(CHAT)),
    ):
        hot = Hot([user_chat(CHAT, 5)], is_loaded=False)

        with pytest.raises(Unavailable):
            await call(make_chats(hot, Warm(Unavailable("warm tier: down"))))
        await call(make_chats(hot, Warm(hot=hot)))

        assert hot.is_loaded


async def test_chats_summary_of_group_has_unread_count_and_last_message() -> None:
    """If the chat has changed since the list was read, the marks are read again."""
    hot = Hot([user_chat(CHAT, 5, top=7, read=3)], marks={ALICE: (4, 4)}, tops={CHAT: 9})

    ((line,), following) = await make_chats(hot).list_page(ALICE, None, 50)

    assert following is None
    assert (line.kind, line.top, line.read, line.unread) == ("group", 9, 4, 5)
    assert (line.members, line.name, line.peer) == ([ALICE, BOB], "Team", None)
    assert line.last is not None
    assert line.last.body == "hot 9"


async def test_chats_unread_counts_only_messages() -> None:
    """Edits, reactions and membership changes are not unread."""
    hot = Hot([user_chat(CHAT, 5, top=9, read=4)], tops={CHAT: 9}, excluded=(2, 4, 6, 8))

    ((line,), _) = await make_chats(hot).list_page(ALICE, None, 50)

    assert (line.read, line.top, line.unread) == (4, 9, 3)


async def test_chats_summary_of_a_chat_that_is_evicted_meanwhile_loads_it_again() -> None:
    """Without its head, the chat would have no messages."""
    hot = Hot([user_chat(CHAT, 5, top=9, read=4)], tops={CHAT: 9})

    class Evicted(KnownAudiences):
        """The chat is evicted after its members have been read, and loaded by `get`."""

        async def get(self, chat: ChatId) -> Audience:
            hot.evicted.discard(chat)
            return await super().get(chat)

        async def get_for_member(self, chat: ChatId, user: UserId) -> Audience:
            audience = await super().get_for_member(chat, user)
            hot.evicted.add(chat)
            return audience

    known = Evicted(audience_of(ALICE, BOB))

    ((line,), _) = await make_chats(hot, None, known).list_page(ALICE, None, 50)

    assert (line.top, line.read, line.unread) == (9, 4, 5)


async def test_chats_last_message_before_the_join_is_not_shown() -> None:
    """The list shows nothing that history would not show (guarantee P7)."""
    hot = Hot([user_chat(CHAT, 5)], tops={CHAT: 9})
    known = KnownAudiences(audience_of(ALICE, BOB, after={ALICE: 9}))

    ((line,), _) = await make_chats(hot, None, known).list_page(ALICE, None, 50)

    assert line.last is None


async def test_chats_summary_of_direct_chat_has_the_marks_of_the_peer() -> None:
    """Read ticks are correct before the first event arrives."""
    hot = Hot([user_chat(CHAT, 5)], marks={BOB: (3, 6)})
    known = KnownAudiences(audience_of(ALICE, BOB, kind="direct"))

    ((line,), _) = await make_chats(hot, None, known).list_page(ALICE, None, 50)

    assert line.kind == "direct"
    assert line.peer == frames.Marks(BOB, 3, 6)


async def test_chats_summary_of_large_group_lists_no_members() -> None:
    """A chat list does not contain hundreds of members."""
    members = [ALICE, *(UserId(f"u{n}") for n in range(MEMBERS_SHOWN_MAX))]
    known = KnownAudiences(audience_of(*members))

    ((line,), _) = await make_chats(Hot([user_chat(CHAT, 5)]), None, known).list_page(
        ALICE, None, 50
    )

    assert line.members == []


async def test_chats_last_message_not_in_redis_is_read_from_the_warm_tier() -> None:
    """An old chat shows its last message too."""
    hot = Hot([user_chat(CHAT, 5)], tops={CHAT: 9}, logged=False)

    ((line,), _) = await make_chats(hot).list_page(ALICE, None, 50)

    assert line.last is not None
    assert (line.last.seq, line.last.body) == (9, "warm")


async def test_chats_list_with_the_warm_tier_down_has_no_previews() -> None:
    """A missing preview does not make the list fail."""
    hot = Hot([user_chat(CHAT, 5)], tops={CHAT: 9}, logged=False)

    ((line,), _) = await make_chats(hot, Warm(Unavailable("down"))).list_page(ALICE, None, 50)

    assert line.last is None
    assert line.top == 9


async def test_chats_list_omits_deleted_and_left_chats() -> None:
    """A chat list may still contain a chat that the user has left."""
    hot = Hot([user_chat("gone", 9), user_chat(CHAT, 5), user_chat("left", 3)])
    known = KnownAudiences(audience_of(ALICE, BOB), audience_of(BOB, CAROL, chat=ChatId("left")))

    lines, _ = await make_chats(hot, None, known).list_page(ALICE, None, 50)

    assert [line.chat for line in lines] == [CHAT]


async def test_snapshot_is_the_inbox_head_and_the_newest_chats() -> None:
    """A device that starts over gets its position and enough for its first screen."""
    chats_in_list = [user_chat(f"c{n:03}", 100 - n) for n in range(SNAPSHOT_CHATS + 5)]
    known = KnownAudiences(*(audience_of(ALICE, chat=each.chat) for each in chats_in_list))
    state = InboxState(Epoch("E2"), Seq(7), Seq(1), is_known=True)

    cursor, lines = await make_chats(Hot(chats_in_list), None, known).get_snapshot(ALICE, state)

    assert cursor == frames.Cursor("E2", 7)
    assert len(lines) == SNAPSHOT_CHATS


# opening and creating


async def test_open_direct_sends_one_event_to_its_opener() -> None:
    """The other user gets an event with the first message, or by opening the chat."""
    hot = Hot()
    chats = make_chats(hot)

    info = await chats.open_direct(ALICE, BOB)
    await chats.open_direct(BOB, ALICE)

    assert info == frames.ChatInfo(CHAT, "direct", [ALICE, BOB])
    assert [users for users, _ in hot.appended] == [[ALICE], [BOB]]
    assert hot.appended[0] == ([ALICE], codec.encode_chat_event_body(info))


async def test_open_direct_with_oneself_is_refused() -> None:
    """The chat would have no other user."""
    with pytest.raises(BadRequest, match="user: must be another user"):
        await make_chats(Hot()).open_direct(ALICE, ALICE)


async def test_create_chat_notifies_every_member() -> None:
    """The creator may be in the list of members, but need not be."""
    hot, warm = Hot(), Warm()
    frame = frames.CreateChat(1, "r", [BOB, ALICE, CAROL], "  Náme ")

    info = await make_chats(hot, warm).create_chat(ALICE, frame)

    assert warm.created == [(ALICE, [BOB, CAROL], "Náme")]
    assert set(hot.notified) == {ALICE, BOB, CAROL}
    assert info.members == [ALICE, BOB, CAROL]


@pytest.mark.parametrize(
    ("members", "name", "error", "why"),
    [
        ([BOB, CAROL, BOB], None, BadRequest, "members: a user is listed twice"),
        ([ALICE], None, BadRequest, "members: must include another user"),
        ([BOB], " ", BadRequest, "name: must not be empty"),
        ([BOB], "x" * 81, TooLarge, "name: must be at most 80 characters"),
    ],
)
async def test_create_chat_with_bad_input_creates_nothing(
    members: list[str], name: str | None, error: type[Exception], why: str
) -> None:
    """The error names the field, before any tier is called."""
    warm = Warm()

    with pytest.raises(error, match=why):
        await make_chats(Hot(), warm).create_chat(ALICE, frames.CreateChat(1, "r", members, name))

    assert warm.created == []
