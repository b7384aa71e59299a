"""From the warm tier into the hot one: users, chats, and what is asked for in their order."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from chatserver.domain.ids import ChatId, Epoch, Ref, Seq, UserId, direct_chat_id
from chatserver.domain.inboxes import ListedChat
from chatserver.errors import BadRequest, NotFound, Unavailable
from chatserver.protocol import frames
from chatserver.service.chats.chat_loader import ChatLoader
from chatserver.service.history.newest_messages import RECENT_MESSAGES
from chatserver.service.membership.change_records import ChangeRecord, encode_record
from chatserver.warm.chats.directory import Membership
from chatserver.warm.chats.records import Chat, Member, User
from chatserver.warm.dynamo.paging import Page
from tests.unit.service.builders import ALICE, BOB, CAROL


def message(seq: int) -> frames.Message:
    """A stored message."""
    return frames.Message(seq, 1000 + seq, "c1", f"m{seq}", "bob", f"r{seq}", "text", "hi")


@dataclasses.dataclass
class Warm:
    """Directory and messages of the warm tier, with a note of what was called."""

    users: set[str] = dataclasses.field(default_factory=lambda: {ALICE, BOB})
    memberships: list[Membership] = dataclasses.field(default_factory=list)
    head: frames.Message | None = None
    newest: list[frames.Message] = dataclasses.field(default_factory=list)
    calls: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    change: str | None = None
    version: int = 1
    lowest: int = 1  # below it, nothing is stored
    filled: list[tuple[int, int]] = dataclasses.field(default_factory=list)

    async def put_user_if_absent(self, user: str, name: str | None, now: float) -> User:
        self.calls.append(("put_user", user))
        self.users.add(user)
        return User(user, name, int(now))

    async def find_known(self, users: Collection[str]) -> set[str]:
        return self.users & set(users)

    async def create_direct(self, chat: str, user: str, other: str, now: float) -> Chat:
        self.calls.append(("create_direct", chat, user, other))
        return Chat(chat, "direct", None, 1, 0)

    async def find_direct(self, chat: str, user: str) -> tuple[bool, bool]:
        return False, False

    async def list_direct(self, chat: str, user: str) -> bool:
        self.calls.append(("list_direct", chat, user))
        return True

    async def create_group(
        self,
        chat: str,
        creator: str,
        members: Sequence[str],
        name: str | None,
        now: float,
        first_change: str | None = None,
        invited: Sequence[str] = (),
    ) -> Chat:
        self.calls.append(("create_group", chat, creator, list(members), name))
        large = 0 if first_change is None else 1
        return Chat(chat, "group", name, self.version, 0, change=first_change, large=large)

    async def get_chat_with_members(self, chat: str) -> tuple[Chat, list[Member]]:
        return Chat(chat, "group", "Team", 3, 0, history="all", change=self.change), [
            Member(chat, ALICE, "owner", joined=1),
            Member(chat, BOB, "member", joined=5),
        ]

    async def list_memberships(
        self, user: str, *, limit: int, start: Any = None, part: str = "all"
    ) -> Page[Membership]:
        if part == "sessions":
            return Page([], None)
        at = start or 0
        rest = at + limit < len(self.memberships)
        return Page(self.memberships[at : at + limit], at + limit if rest else None)  # type: ignore[arg-type]  # a token of our own

    async def find_head(self, chat: str) -> frames.Message | None:
        return self.head

    async def list_before(
        self, chat: str, before: int | None, limit: int, ts_hint: int | None = None
    ) -> list[frames.Message]:
        self.calls.append(("list_before", before, limit, ts_hint))
        return self.newest[-limit:]

    async def get_archived_ts(self, chat: str) -> int:
        return 0

    async def fill_hole(self, chat: str, seq: int, ts: int) -> bool:
        if self.lowest > seq:
            return False
        self.filled.append((seq, ts))
        self.newest = [message(seq), *self.newest]
        return True

    async def list_after(
        self, chat: str, after: int, limit: int, ts_hint: int | None = None
    ) -> list[frames.Message]:
        self.calls.append(("list_after", after, limit, ts_hint))
        return self.newest[:limit]


@dataclasses.dataclass
class Hot:
    """Keeps what is opened."""

    chats: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    opened: list[tuple[str, Epoch | None]] = dataclasses.field(default_factory=list)
    large: list[int] = dataclasses.field(default_factory=list)
    unfinished: list[ChatId] = dataclasses.field(default_factory=list)
    stale: int = 0  # so many times what was read is too old
    ref_ttl_s: int = 60
    seq: Seq = Seq(2**40)  # noqa: RUF009  # the newest that Redis has of the chat: all of it
    boxes: list[tuple[UserId, list[ListedChat], Epoch]] = dataclasses.field(default_factory=list)

    async def open_chat(
        self,
        chat: ChatId,
        kind: str,
        name: str | None,
        version: int,
        members: Mapping[UserId, tuple[str, int]],
        head: tuple[int, int],
        newest: Sequence[frames.Message],
        history: str = "joined",
        epoch: Epoch | None = None,
        large: int = 0,
        *rest: object,
    ) -> bool:
        self.large.append(large)
        self.chats.append((chat, kind, name, version, dict(members), head, list(newest)))
        self.opened.append((history, epoch))
        return len(self.chats) > self.stale

    async def get_seq(self, chat: ChatId) -> Seq:
        return self.seq

    async def note_unfinished(self, chat: ChatId) -> None:
        self.unfinished.append(chat)

    def epoch_of_chat(self, chat: ChatId) -> Epoch:
        return Epoch("E1")

    def epoch_of_user(self, user: UserId) -> Epoch:
        return Epoch("E1")

    async def open_box(self, user: UserId, chats: Sequence[ListedChat], epoch: Epoch) -> None:
        self.boxes.append((user, list(chats), epoch))


def listed(chat: str, read: int) -> ListedChat:
    """A chat that is no large one, as the directory lists it."""
    return ListedChat(ChatId(chat), Seq(read), Seq(read + 1), None, 1)


class FixedClock:
    """A clock that stands still."""

    def time(self) -> float:
        return 1000.0

    def monotonic(self) -> float:
        return 0.0


def opener_of(warm: Warm, hot: Hot) -> ChatLoader:
    """The use case between its fakes."""
    return ChatLoader(warm, warm, hot, hot, FixedClock())


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

    await opener_of(warm, hot).load_user(CAROL)

    assert hot.boxes == [(CAROL, [listed(f"c{n}", n) for n in range(count)], "E1")]
    assert CAROL in warm.users


async def test_load_user_with_very_many_chats_loads_all_of_them() -> None:
    """The list never ends silently: membership is bounded where users join, not here."""
    warm, hot = Warm(memberships=memberships(4_150)), Hot()

    await opener_of(warm, hot).load_user(ALICE)

    ((_, chats, _),) = hot.boxes
    assert len(chats) == 4_150


async def test_load_chat_opens_it_above_its_head() -> None:
    """Members with their joining, newest messages, and the head even if it has expired."""
    warm, hot = Warm(head=message(9), newest=[message(7), message(8)]), Hot()

    await opener_of(warm, hot).load_chat(ChatId("c1"))

    assert hot.chats == [
        (
            "c1",
            "group",
            "Team",
            3,
            {ALICE: ("owner", 1), BOB: ("member", 5)},
            (9, 1009),
            [message(7), message(8)],
        )
    ]
    assert ("list_before", 10, RECENT_MESSAGES, 1010) in warm.calls


@pytest.mark.parametrize(
    ("held", "lowest", "filled"),
    [
        (0, 1, [6, 5, 4, 3, 2, 1]),  # Redis has nothing
        (4, 1, [6, 5]),  # the rest is in its backlog
        (6, 1, []),
        (0, 5, [6, 5]),  # what is older has left this tier in good order
    ],
)
async def test_load_chat_fills_the_places_of_what_no_tier_has(
    held: int, lowest: int, filled: list[int]
) -> None:
    """A message lost with Redis leaves a tombstone, not a hole that nobody can read past."""
    warm = Warm(head=message(8), newest=[message(7), message(8)], lowest=lowest)
    hot = Hot(seq=Seq(held))

    await opener_of(warm, hot).load_chat(ChatId("c1"))

    assert warm.filled == [(seq, 1000 + seq) for seq in filled]
    ((*_, newest),) = hot.chats
    assert [each.seq for each in newest] == [*sorted(filled), 7, 8]


async def test_load_chat_hands_over_what_it_read_and_in_which_epoch() -> None:
    """The hot tier can tell what was read too early; see `Opening.open_chat`."""
    hot = Hot()

    await opener_of(Warm(), hot).load_chat(ChatId("c1"))

    assert hot.opened == [("all", "E1")]
    assert hot.unfinished == []


async def test_load_chat_read_too_early_is_read_again() -> None:
    """A membership that is older than what the hot tier had is never put there (promise P7)."""
    hot = Hot(stale=2)

    await opener_of(Warm(), hot).load_chat(ChatId("c1"))

    assert len(hot.chats) == 3


async def test_load_chat_that_keeps_changing_is_unavailable() -> None:
    """It ends."""
    with pytest.raises(Unavailable):
        await opener_of(Warm(), Hot(stale=100)).load_chat(ChatId("c1"))


async def test_load_chat_with_an_unfinished_change_leaves_a_note() -> None:
    """Its entries are not in the log yet: somebody has to put them there."""
    hot = Hot()

    change = encode_record(ChangeRecord("alice", "r1", "d", update_mid="M1", name="Team"))

    await opener_of(Warm(change=change), hot).load_chat(ChatId("c1"))

    assert hot.unfinished == ["c1"]


async def test_create_chat_again_after_changes_tells_what_it_is_now() -> None:
    """Members of the first hour may have left since: nobody else may hear of the group."""
    info = await opener_of(Warm(version=3), Hot()).create_chat(ALICE, Ref("r1"), [BOB], "X")

    assert (info.name, info.members, info.count) == ("Team", [ALICE, BOB], 2)
    assert (info.roles, info.history) == ({ALICE: "owner"}, "all")


async def test_create_chat_again_by_one_who_left_is_not_found() -> None:
    """He may not know who is in it."""
    warm = Warm(version=3, users={ALICE, BOB, CAROL})

    with pytest.raises(NotFound):
        await opener_of(warm, Hot()).create_chat(CAROL, Ref("r1"), [ALICE], "X")


async def test_load_chat_without_messages_begins_at_zero() -> None:
    """The first message is number one."""
    hot = Hot()

    await opener_of(Warm(), hot).load_chat(ChatId("c1"))

    assert hot.chats[0][5:] == ((0, 0), [])


@pytest.mark.parametrize(("user", "other"), [(ALICE, BOB), (BOB, ALICE)])
async def test_open_direct_is_the_same_whoever_asks(user: UserId, other: UserId) -> None:
    """Id, record and answer do not depend on who came first."""
    warm, hot = Warm(), Hot()

    info = await opener_of(warm, hot).open_direct(user, other)

    chat = direct_chat_id(ALICE, BOB)
    assert info == frames.ChatInfo(chat, "direct", [ALICE, BOB])
    assert warm.calls[0] == ("create_direct", chat, user, other)
    assert hot.chats[0][0] == chat


async def test_open_direct_with_nobody_creates_nothing() -> None:
    """Who does not exist cannot be written to."""
    warm, hot = Warm(), Hot()

    with pytest.raises(NotFound, match="carol: there is no such user"):
        await opener_of(warm, hot).open_direct(ALICE, CAROL)

    assert warm.calls == hot.chats == []


async def test_create_chat_again_under_its_ref_is_the_same_group() -> None:
    """A retry does not make a second one."""
    warm, hot = Warm(), Hot()
    opener = opener_of(warm, hot)

    first = await opener.create_chat(ALICE, Ref("r1"), [BOB], "Team")
    again = await opener.create_chat(ALICE, Ref("r1"), [BOB], "Team")
    other = await opener.create_chat(ALICE, Ref("r2"), [BOB], "Team")

    assert first == again
    assert other.chat != first.chat
    assert first == frames.ChatInfo(
        first.chat, "group", [ALICE, BOB], "Team", count=2, roles={ALICE: "owner"}
    )


async def test_create_chat_of_more_than_a_chat_may_have_is_refused() -> None:
    """The message names the bound, and nothing is created."""
    warm, hot = Warm(), Hot()
    opener = ChatLoader(warm, warm, hot, hot, FixedClock(), members_max=2)

    assert await opener.create_chat(ALICE, Ref("r1"), [BOB], None)
    with pytest.raises(BadRequest, match="at most 2"):
        await opener.create_chat(ALICE, Ref("r2"), [BOB, CAROL], None)
    assert len(hot.chats) == 1


async def test_create_chat_names_the_first_member_who_does_not_exist() -> None:
    """The caller can mend the request."""
    warm, hot = Warm(), Hot()

    with pytest.raises(NotFound, match="carol: there is no such user"):
        await opener_of(warm, hot).create_chat(ALICE, Ref("r1"), [BOB, CAROL], None)

    assert warm.calls == []


async def test_read_history_goes_the_way_it_is_asked() -> None:
    """The hint is passed on."""
    warm = Warm(newest=[message(1), message(2)])
    opener = opener_of(warm, Hot())

    await opener.read_history(ChatId("c1"), 9, None, 20, 1009)
    await opener.read_history(ChatId("c1"), None, 4, 20, None)
    await opener.read_history(ChatId("c1"), None, 0, 20, None)

    assert warm.calls == [
        ("list_before", 9, 20, 1009),
        ("list_after", 4, 20, None),
        ("list_after", 0, 20, None),
    ]
