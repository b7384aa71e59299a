"""Read marks: moved, sent to the other members, and loaded first if Redis lost them."""

from __future__ import annotations

import pytest

from chatserver.domain.ids import ChatId, UserId
from chatserver.domain.messages import Audience
from chatserver.errors import NotFound, Unavailable
from chatserver.protocol import codec, frames
from chatserver.protocol.redis_memory_costs import Charge, charge_nobody
from chatserver.service.chats.read_marks import READ_MARKS_MEMBERS_MAX, ReadMarks
from tests.unit.service.builders import ALICE, BOB, CHAT, KnownAudiences, audience_of
from tests.unit.service.chats.fakes import Hot, Warm


def make_marks(
    hot: Hot, warm: Warm | None = None, *known: KnownAudiences, charge: Charge = charge_nobody
) -> ReadMarks:
    """Return a `ReadMarks`; by default CHAT is a group of alice and bob."""
    audiences = known[0] if known else KnownAudiences(audience_of(ALICE, BOB))
    load_user = (warm or Warm()).load_user
    return ReadMarks(
        inboxes=hot, audiences=audiences, load_user=load_user, devices=hot, charge=charge
    )


async def test_mark_of_an_unloaded_user_is_moved_after_loading() -> None:
    """Redis may have lost the user's chats."""
    hot = Hot(is_loaded=False)

    with pytest.raises(Unavailable):
        await make_marks(hot, Warm(Unavailable("warm tier: down"))).move(
            ALICE, frames.Mark(CHAT, read=4)
        )
    await make_marks(hot, Warm(hot=hot)).move(ALICE, frames.Mark(CHAT, read=4))

    assert hot.appended


async def test_mark_in_an_unknown_chat_of_a_loaded_user_is_not_found() -> None:
    """The warm tier is not called."""
    warm = Warm(Unavailable("warm tier: called"))

    with pytest.raises(NotFound):
        await make_marks(Hot(is_member=False), warm).move(ALICE, frames.Mark(CHAT, read=4))


async def test_mark_that_moved_is_sent_to_all_members() -> None:
    """Other members and the user's own devices get the new marks."""
    hot = Hot()

    await make_marks(hot).move(ALICE, frames.Mark(CHAT, read=4))

    ((users, body),) = hot.appended
    assert users == [ALICE, BOB]
    assert body == codec.read_event_body(CHAT, frames.Marks(ALICE, 4, 5))
    assert hot.notified == [ALICE, BOB]
    assert hot.levels == [(ALICE, 4 + 5)]


async def test_mark_already_in_the_inboxes_notifies_again_and_is_not_charged() -> None:
    """The first call may have ended before it notified the devices."""
    hot, charged = Hot(has_marks=True), list[int]()

    await make_marks(hot, charge=lambda user, size_bytes: charged.append(size_bytes)).move(
        ALICE, frames.Mark(CHAT, read=4)
    )

    assert hot.notified == [ALICE, BOB]
    assert sum(charged) == 0


async def test_mark_in_large_group_is_sent_to_own_devices_only() -> None:
    """With 33 members, one message would otherwise cause a thousand events."""
    members = [ALICE, *(UserId(f"u{n}") for n in range(READ_MARKS_MEMBERS_MAX))]
    hot = Hot()

    await make_marks(hot, None, KnownAudiences(audience_of(*members))).move(
        ALICE, frames.Mark(CHAT, read=4)
    )

    assert hot.notified == [ALICE]


async def test_marks_in_an_evicted_chat_include_own_messages() -> None:
    """Redis has the newest message of each member only while it has the chat."""

    class EvictedAudiences(KnownAudiences):
        """Loads the chat."""

        async def get(self, chat: ChatId) -> Audience:
            hot.evicted.discard(chat)
            return await super().get(chat)

    class Inboxes(Hot):
        """The chat is evicted again after its members have been read."""

        async def list_blocked(self, user: UserId) -> set[UserId]:
            self.evicted.add(CHAT)
            return set()

    hot = Inboxes(marks={ALICE: (7, 7), BOB: (4, 5)})
    audiences = EvictedAudiences(audience_of(ALICE, BOB))

    marks = ReadMarks(
        inboxes=hot, audiences=audiences, load_user=Warm().load_user, devices=hot, blocks=hot
    )

    assert await marks.list_marks(BOB, CHAT) == [
        frames.Marks(ALICE, 7, 7),
        frames.Marks(BOB, 4, 5),
    ]
