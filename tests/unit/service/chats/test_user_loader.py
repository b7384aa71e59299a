"""Loading of users: all chats and marks, and restrictions before them."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from ulid import ULID

from chatserver.domain.ids import ChatId, Epoch, Seq
from chatserver.domain.inboxes import ListedChat
from chatserver.errors import Unavailable
from chatserver.service.chats.user_loader import INDEX_DELAY_S
from chatserver.warm.chats.directory import ChatMembership
from chatserver.warm.chats.directory_items import StoredChat, StoredMember, User
from chatserver.warm.chats.user_restrictions import Restrictions
from tests.support.fake_clocks import FakeClock
from tests.unit.service.builders import ALICE, BOB, CAROL
from tests.unit.service.chats.chats_world import Hot, Warm, make_user_loader


def listed(chat: str, read: int) -> ListedChat:
    """Return a chat in the directory that is not large."""
    return ListedChat(ChatId(chat), Seq(read), Seq(read + 1), None, 1)


def memberships(count: int) -> list[ChatMembership]:
    """Return `count` memberships of alice."""
    return [
        ChatMembership(
            StoredChat(f"c{n}", "group", None, 1, 0),
            StoredMember(f"c{n}", ALICE, "member", 0, n, n + 1),
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, 100])
async def test_load_user_loads_all_chats_and_marks(count: int) -> None:
    """The user state contains every chat of the directory."""
    warm, hot = Warm(memberships=memberships(count)), Hot()

    await make_user_loader(warm, hot).load_user(ALICE)

    assert hot.user_states == [(ALICE, [listed(f"c{n}", n) for n in range(count)], "E1")]


async def test_load_user_with_very_many_chats_loads_all_of_them() -> None:
    """The list is never cut: memberships are limited when users join, not here."""
    warm, hot = Warm(memberships=memberships(4_150)), Hot()

    await make_user_loader(warm, hot).load_user(ALICE)

    ((_, chats, _),) = hot.user_states
    assert len(chats) == 4_150


async def test_load_user_of_a_new_user_creates_it_and_reads_nothing_else() -> None:
    """Chats, logins and blocks require the user's item, so a new user has none."""
    warm, hot = Warm(), Hot()

    await make_user_loader(warm, hot).load_user(CAROL)

    assert CAROL in warm.users
    assert warm.calls == []
    assert hot.user_states == [(CAROL, [], "E1")]


async def test_load_user_waits_for_the_index_after_redis_lost_its_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only users from before the epoch wait, and only until the index has their memberships."""
    clock, hot = FakeClock(5_000.0), Hot(user_epoch=Epoch(str(ULID.from_timestamp(4_999.0))))
    waits = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock.advance(seconds)

    monkeypatch.setattr("chatserver.service.chats.user_loader.asyncio.sleep", sleep)
    loader = make_user_loader(Warm(created_ms=4_000_000), hot, clock=clock)
    for _ in range(2):
        await loader.load_user(ALICE)
    await make_user_loader(Warm(created_ms=4_999_500), hot, clock=clock).load_user(ALICE)
    clock.advance(120)
    await make_user_loader(Warm(created_ms=4_000_000), hot, clock=clock).load_user(ALICE)

    assert waits == [INDEX_DELAY_S]


async def test_load_user_without_restrictions_reads_only_the_chats() -> None:
    """Most users have no blocks and no revoked logins: loading them costs one Query."""
    warm, hot = Warm(), Hot()

    await make_user_loader(warm, hot).load_user(ALICE)

    assert warm.calls == [("list_all_memberships", ALICE)]


async def test_load_user_with_restrictions_restores_them_before_the_user_state() -> None:
    """A session that sees a loaded state is checked against all revocations and blocks."""
    restrictions = Restrictions(frozenset({"phone"}), frozenset({BOB}))
    warm, hot = Warm(is_restricted=True, restrictions=restrictions), Hot()
    restored = []

    async def restore(record: User, ended: Collection[str]) -> None:
        assert not hot.user_states
        restored.append((record.user, set(ended)))

    await make_user_loader(warm, hot, restore).load_user(ALICE)

    assert restored == [(ALICE, {"phone"})]
    assert hot.blocks == {ALICE: {BOB}}
    assert [user for user, *_ in hot.user_states] == [ALICE]


async def test_load_user_whose_restrictions_cannot_be_read_loads_nothing() -> None:
    """A state marked as loaded would prevent another read of the restrictions."""

    class Failing(Warm):
        async def read(self, user: str) -> Restrictions:
            raise Unavailable("DynamoDB is down")

    hot = Hot()

    with pytest.raises(Unavailable):
        await make_user_loader(Failing(is_restricted=True), hot).load_user(ALICE)

    assert hot.user_states == []
