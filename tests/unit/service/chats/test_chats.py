"""A user's chats: list pages, summaries, marks and typing."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import ChatId, Epoch, GatewayId, Ref, Seq, Ts, UserId
from chatserver.domain.inboxes import AppendResult, InboxState, MarkResult, UserChat
from chatserver.domain.message_changes import HiddenSeqs
from chatserver.domain.messages import ChatHead, LogEntry
from chatserver.errors import BadRequest, ChatError, NotFound, TooLarge, Unavailable
from chatserver.hot.bus.rpc import HistoryRun
from chatserver.protocol import codec, frames
from chatserver.service.chats.read_marks import READ_MARKS_MEMBERS_MAX, ReadMarks
from chatserver.service.chats.typing_signals import TypingSignals
from chatserver.service.chats.user_chats import MEMBERS_SHOWN_MAX, SNAPSHOT_CHATS, Chats
from tests.unit.service.builders import ALICE, BOB, CAROL, CHAT, KnownAudiences, audience_of

REMOTE = (GatewayId("gw2"),)


@dataclasses.dataclass
class Hot:
    """Inboxes, logs and signals in one fake."""

    chats_in_list: list[UserChat] = dataclasses.field(default_factory=list)
    marks: dict[UserId, tuple[int, int]] = dataclasses.field(default_factory=dict)
    tops: dict[ChatId, int] = dataclasses.field(default_factory=dict)
    logged: bool = True
    excluded: tuple[int, ...] = ()
    result: MarkResult = MarkResult(True, Seq(4), Seq(5))  # noqa: RUF009  # frozen
    listed: set[UserId] = dataclasses.field(default_factory=set)
    appended: list[tuple[list[UserId], bytes]] = dataclasses.field(default_factory=list)
    levels: list[tuple[UserId, int]] = dataclasses.field(default_factory=list)
    is_loaded: bool = True  # Redis has all chats of the user
    is_member: bool = True  # the user has the chat that is marked
    has_marks: bool = False  # the inboxes contain these marks or newer ones
    notified: list[UserId] = dataclasses.field(default_factory=list)
    signals: list[tuple[UserId, bytes]] = dataclasses.field(default_factory=list)

    async def find_all_chats(self, user: UserId) -> list[UserChat] | None:
        return list(self.chats_in_list) if self.is_loaded else None

    async def is_known(self, user: UserId) -> bool:
        return self.is_loaded

    async def get_marks(self, user: UserId, chat: ChatId) -> tuple[Seq, Seq]:
        read, received = self.marks.get(user, (0, 0))
        return Seq(read), Seq(received)

    async def mark(self, user: UserId, chat: ChatId, read: Seq, received: Seq) -> MarkResult:
        if not self.is_loaded or not self.is_member:
            raise NotFound("chat: no such chat, or you are not a member")
        return self.result

    async def append_event(
        self, users: Sequence[UserId], chat: ChatId, body: bytes, *, is_listed: bool = False
    ) -> list[AppendResult]:
        self.appended.append((list(users), body))
        new = [user for user in users if not (is_listed and user in self.listed)]
        self.listed |= set(users)
        return [AppendResult(user, int(user in new), Seq(1), REMOTE) for user in users]

    async def append_marks(
        self, users: Sequence[UserId], chat: ChatId, body: bytes, reader: UserId, level: int
    ) -> list[AppendResult]:
        self.levels.append((reader, level))
        places = await self.append_event(users, chat, body)
        return [dataclasses.replace(place, appended=int(not self.has_marks)) for place in places]

    async def list_gateways(self, users: Sequence[UserId]) -> list[tuple[GatewayId, ...]]:
        return [REMOTE for _ in users]

    async def get_head(self, chat: ChatId) -> ChatHead:
        return ChatHead(Seq(self.tops.get(chat, 0)), is_open=True)

    async def list_before(self, chat: ChatId, before: Seq | None, limit: int) -> list[LogEntry]:
        top = self.tops.get(chat, 0)
        if not self.logged or not top:
            return []
        tail = codec.encode_message_tail(chat, "m", BOB, "r", "text", f"hot {top}", None)
        return [LogEntry(Seq(top), Ts(1000 + top), tail)]

    async def list_after(self, chat: ChatId, after: Seq, limit: int) -> list[LogEntry]:
        return []

    async def count_unread(
        self, chat: ChatId, read: Seq, top: Seq, now_s: float, hidden: HiddenSeqs
    ) -> int:
        return sum(seq not in {*self.excluded, *hidden} for seq in range(read + 1, top + 1))

    async def is_earlier_history_readable(self, chat: ChatId) -> bool:
        return False

    async def list_blocked(self, user: UserId) -> set[UserId]:
        return set()

    def notify_seq(self, user: UserId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        assert gateways == REMOTE
        self.notified.append(user)

    def send_signal(self, user: UserId, frame: bytes, gateways: Sequence[GatewayId]) -> None:
        self.signals.append((user, frame))


@dataclasses.dataclass
class Warm:
    """The warm tier: creates chats, and has the message below any seq."""

    error: ChatError | None = None
    hot: Hot | None = None  # where users are loaded
    created: list[tuple[str, list[str], str | None]] = dataclasses.field(default_factory=list)

    async def load_user(self, user: UserId) -> None:
        if self.error is not None:
            raise self.error
        if self.hot is not None:
            self.hot.is_loaded = True

    async def open_direct(
        self, user: UserId, other: UserId, *, is_host: bool = False
    ) -> frames.ChatInfo:
        return frames.ChatInfo(CHAT, "direct", sorted((user, other)))

    async def create_chat(
        self,
        user: UserId,
        ref: Ref,
        members: Sequence[UserId],
        name: str | None,
        *,
        is_host: bool = False,
    ) -> frames.ChatInfo:
        self.created.append((user, list(members), name))
        return frames.ChatInfo(CHAT, "group", [user, *members], name)

    async def read_run(
        self, chat: ChatId, before: int | None, after: int | None, limit: int, ts: int | None
    ) -> HistoryRun:
        if self.error is not None:
            raise self.error
        assert before is not None
        return HistoryRun([frames.Message(before - 1, 9, chat, "m", BOB, "r", "text", "warm")])


def make_chats(hot: Hot, warm: Warm | None = None, *known: KnownAudiences) -> Chats:
    """Return the use cases; by default CHAT is a group of alice and bob."""
    warm = warm or Warm()
    audiences = known[0] if known else KnownAudiences(audience_of(ALICE, BOB, name="Team"))
    return Chats(
        inboxes=hot,
        audiences=audiences,
        log=hot,
        older=warm,
        directory=warm,
        load_user=warm.load_user,
        devices=hot,
    )


def make_marks(hot: Hot, warm: Warm | None = None, *known: KnownAudiences) -> ReadMarks:
    """Return the read marks; by default CHAT is a group of alice and bob."""
    audiences = known[0] if known else KnownAudiences(audience_of(ALICE, BOB))
    load_user = (warm or Warm()).load_user
    return ReadMarks(inboxes=hot, audiences=audiences, load_user=load_user, devices=hot)


def make_typing(hot: Hot, *known: KnownAudiences) -> TypingSignals:
    """Return the typing signals; by default CHAT is a group of alice and bob."""
    audiences = known[0] if known else KnownAudiences(audience_of(ALICE, BOB))
    return TypingSignals(inboxes=hot, audiences=audiences, devices=hot, large_chats=hot, blocks=hot)


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


async def test_mark_of_an_unloaded_user_is_moved_after_loading() -> None:
    """Redis may have lost the user's chats."""
    hot = Hot(is_loaded=False)

    with pytest.raises(Unavailable):
        await make_marks(hot, Warm(Unavailable("warm tier: down"))).move(
            ALICE, frames.Mark(CHAT, read=4)
        )
    await make_marks(hot, Warm(hot=hot)).move(ALICE, frames.Mark(CHAT, read=4))

    assert hot.is_loaded


async def test_mark_in_an_unknown_chat_of_a_loaded_user_is_not_found() -> None:
    """The warm tier is not called."""
    warm = Warm(Unavailable("warm tier: called"))

    with pytest.raises(NotFound):
        await make_marks(Hot(is_member=False), warm).move(ALICE, frames.Mark(CHAT, read=4))


async def test_chats_summary_of_group_has_unread_count_and_last_message() -> None:
    """Counts use the head of the chat, not the deliveries to this inbox."""
    hot = Hot([user_chat(CHAT, 5, top=7, read=4)], tops={CHAT: 9})

    ((line,), following) = await make_chats(hot).list_page(ALICE, None, 50)

    assert following is None
    assert (line.kind, line.top, line.read, line.unread) == ("group", 9, 4, 5)
    assert (line.members, line.name, line.peer) == ([ALICE, BOB], "Team", None)
    assert line.last is not None
    assert line.last.body == "hot 9"


async def test_chats_unread_counts_only_messages() -> None:
    """Edits, reactions and membership changes are not unread."""
    hot = Hot([user_chat(CHAT, 5, read=4)], tops={CHAT: 9}, excluded=(2, 4, 6, 8))

    ((line,), _) = await make_chats(hot).list_page(ALICE, None, 50)

    assert (line.read, line.top, line.unread) == (4, 9, 3)


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


# marks and typing


async def test_mark_that_moved_is_sent_to_all_members() -> None:
    """Other members and the user's own devices get the new marks."""
    hot = Hot()

    await make_marks(hot).move(ALICE, frames.Mark(CHAT, read=4))

    ((users, body),) = hot.appended
    assert users == [ALICE, BOB]
    assert body == codec.read_event_body(CHAT, frames.Marks(ALICE, 4, 5))
    assert hot.notified == [ALICE, BOB]
    assert hot.levels == [(ALICE, 4 + 5)]


async def test_mark_already_in_the_inboxes_notifies_nobody() -> None:
    """A late mark does not wake a device."""
    hot = Hot(has_marks=True)

    await make_marks(hot).move(ALICE, frames.Mark(CHAT, read=4))

    assert hot.notified == []


async def test_mark_that_did_not_move_is_not_appended() -> None:
    """A repeat writes no event."""
    hot = Hot(result=MarkResult(False, Seq(4), Seq(5)))

    await make_marks(hot).move(ALICE, frames.Mark(CHAT, read=4))

    assert hot.appended == []


async def test_mark_in_large_group_is_sent_to_own_devices_only() -> None:
    """With 33 members, one message would otherwise cause a thousand events."""
    members = [ALICE, *(UserId(f"u{n}") for n in range(READ_MARKS_MEMBERS_MAX))]
    hot = Hot()

    await make_marks(hot, None, KnownAudiences(audience_of(*members))).move(
        ALICE, frames.Mark(CHAT, read=4)
    )

    assert hot.notified == [ALICE]


async def test_typing_is_sent_to_the_other_members() -> None:
    """The user who types gets no signal."""
    hot = Hot()
    known = KnownAudiences(audience_of(ALICE, BOB, CAROL))

    await make_typing(hot, known).send(ALICE, frames.Typing(CHAT, on=True))

    signal = codec.encode(frames.Signal("typing", CHAT, ALICE, True))
    assert hot.signals == [(BOB, signal), (CAROL, signal)]


async def test_typing_by_a_non_member_is_refused() -> None:
    """A non-member cannot send a signal (guarantee P7)."""
    hot = Hot()

    with pytest.raises(NotFound):
        await make_typing(hot).send(CAROL, frames.Typing(CHAT, on=True))
    assert hot.signals == []
