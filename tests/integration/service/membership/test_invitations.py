"""Invitations: strangers cannot make a user a member of a group without consent."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import AsyncIterator

import pytest

from chatserver import config
from chatserver.container.storage import StorageContainer
from chatserver.domain.access.logins import NEW_ACCOUNT_S
from chatserver.domain.ids import ChatId, Ref, UserId, direct_chat_id
from chatserver.domain.invitation_rules import INVITATIONS_FROM_INVITER_MAX, ListedKind
from chatserver.errors import BadRequest, Forbidden, NotFound, RateLimited, TooLarge
from chatserver.features.chat_preferences.container import PreferencesContainer
from chatserver.features.chat_preferences.model import PreferencesChange
from chatserver.features.push.container import PushContainer
from chatserver.features.social.warm.follow_edges import FollowEdges
from chatserver.protocol import frames
from chatserver.service.chats.chat_loader import ChatLoader
from chatserver.warm.chats.muted_chats import FOR_EVER_MS
from chatserver.warm.chats.stored_invitations import StoredInvitations
from tests.integration.warm.support import Tables
from tests.integration.workers.support import (
    ALICE,
    BOB,
    CAROL,
    Gateway,
    change,
    is_drained,
    make_group,
    make_request,
    make_users,
    open_container,
    persister_of,
    running,
)
from tests.support.constants import constants
from tests.support.servers.processes import eventually

_numbers = itertools.count(1)


async def create(container: StorageContainer, *others: UserId, ref: str = "") -> frames.ChatInfo:
    """Create a group as alice, with others."""
    return await container.chat_creator.create_chat(
        ALICE, Ref(ref or f"g{next(_numbers)}"), others, "Trip"
    )


async def pending(container: StorageContainer, user: UserId) -> list[str]:
    """Return the chats that a user is invited to."""
    found, _ = await container.invitations.list_pending(user, None, 100)
    return [each.chat for each in found]


async def chats_of(container: StorageContainer, user: UserId) -> list[str]:
    """Return the chats of a user from the directory."""
    page = await container.directory.list_memberships(user, limit=100)
    return [each.chat.chat for each in page.items]


@pytest.fixture
async def container(redis_url: str, tables: Tables) -> AsyncIterator[StorageContainer]:
    """The container of a worker with low limits on chats and invitations per user."""
    chats = config.Chats(per_user_max=4)
    with constants({"chatserver.domain.invitation_rules.INVITATIONS_PENDING_MAX": 7}):
        async with open_container(redis_url, tables.settings, chats=chats) as made:
            await make_users(made, ALICE, BOB, CAROL)
            yield made


async def test_user_invited_by_a_stranger_is_a_member_only_after_they_accept(
    container: StorageContainer,
) -> None:
    """Until then the user has an invitation to new and existing groups, and no chat or event."""
    made = await create(container, BOB, ref="one")
    other = await create(container, CAROL, ref="two")
    info = await change(container, ALICE, frames.Invite, other.chat, users=[BOB])

    assert (made.members, made.invited) == ([ALICE], [BOB])
    assert (BOB in info.members, info.invited) == (False, [BOB])
    assert await chats_of(container, BOB) == []
    assert await container.inboxes.list_after(BOB, 0, 10) == []  # type: ignore[arg-type]
    assert await pending(container, BOB) == sorted([made.chat, other.chat])

    accepted = await change(container, BOB, frames.AcceptInvitation, made.chat, ref="a1")
    again = await change(container, BOB, frames.AcceptInvitation, made.chat, ref="a1")

    assert set(accepted.members) == set(again.members) == {ALICE, BOB}
    assert await pending(container, BOB) == [other.chat]
    assert (await create(container, BOB, ref="one")).count == 2
    third = await create(container, BOB)
    assert (set(third.members), third.invited) == ({ALICE, BOB}, [])


async def test_page_of_only_expired_or_declined_invitations_has_a_next_page(
    container: StorageContainer,
) -> None:
    """Later pages still return the pending invitations."""
    rows = StoredInvitations(container.dynamodb)
    chats = sorted([(await create(container, BOB)).chat for _ in range(4)])
    expired, declined, *others = chats
    invitation = await container.invitations.get(BOB, ChatId(expired))
    now_s = container.clock.time()
    await rows.delete(BOB, expired)
    assert await rows.put(dataclasses.replace(invitation, expires_s=int(now_s) - 1), now_s)
    await container.invitations.decline(BOB, ChatId(declined))

    found: list[str] = []
    after: str | None = None
    for _ in chats:
        page, after = await container.invitations.list_pending(BOB, after, 1)
        found += [each.chat for each in page]
        if after is None:
            break

    assert (found, after) == (others, None)


async def test_declined_invitation_is_not_sent_again(container: StorageContainer) -> None:
    """The inviter does not see that it was declined, and the user gets no second invitation."""
    chat = (await create(container, BOB)).chat

    await container.invitations.decline(BOB, ChatId(chat))
    await change(container, ALICE, frames.Invite, chat, users=[BOB])

    assert await pending(container, BOB) == []
    with pytest.raises(NotFound, match="no invitation"):
        await change(container, BOB, frames.AcceptInvitation, chat)


async def test_inviter_to_whom_the_user_wrote_is_not_a_stranger(
    container: StorageContainer,
) -> None:
    """A followed user is not a stranger either. A user who only opened a direct chat is one."""
    info = await container.chat_creator.open_direct(ALICE, BOB)
    assert (await create(container, BOB)).invited == [BOB]

    audience = await container.audiences.get(ChatId(info.chat))
    await Gateway(container.hot).send(audience, "hello", sender=BOB)
    await FollowEdges(container.messages._client).follow(CAROL, ALICE, 1)

    assert set((await create(container, BOB, CAROL)).members) == {ALICE, BOB, CAROL}


async def test_strangers_without_a_direct_chat_cause_no_load_of_chats(
    container: StorageContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large group of strangers does not load a direct chat for each of them."""
    strangers = [UserId(f"stranger-{number}") for number in range(50)]
    loaded: list[str] = []

    async def load(loader: ChatLoader, chat: ChatId) -> bool:
        loaded.append(chat)
        return True

    monkeypatch.setattr(ChatLoader, "_load_chat", load)

    found = await container.invitations.find_strangers(ALICE, strangers, is_host=False)

    assert found == set(strangers)
    assert not loaded


async def test_invitations_are_limited_per_inviter_and_per_user(
    container: StorageContainer,
) -> None:
    """One inviter cannot fill the list, nor push out invitations of others who have as many."""
    await make_users(container, UserId("dave"))
    for number in range(INVITATIONS_FROM_INVITER_MAX):
        await container.invitations.invite(ALICE, ChatId(f"g-a{number}"), None, "member", [BOB])
    with pytest.raises(TooLarge, match="invitations from you"):
        await container.invitations.invite(ALICE, ChatId("g-more"), None, "member", [BOB])

    for number in range(4):
        await container.invitations.invite(CAROL, ChatId(f"g-c{number}"), None, "member", [BOB])

    found = await pending(container, BOB)
    assert len(found) == 7
    assert set(found) >= {"g-a0", "g-a1", "g-a2", "g-a3", "g-c0", "g-c1", "g-c2"}


async def test_many_accounts_do_not_push_out_the_invitations_of_others(
    container: StorageContainer,
) -> None:
    """Neither a friend's earlier or later invitation, nor that the user has declined one."""
    now_s = container.clock.time()
    for name in ("old-friend", "late-friend"):
        await container.directory.put_user_if_absent(name, name, now_s - 2 * NEW_ACCOUNT_S)
    invite = container.invitations.invite
    await invite(UserId("old-friend"), ChatId("g-early"), None, "member", [BOB])
    await invite(ALICE, ChatId("g-declined"), None, "member", [BOB])
    await container.invitations.decline(BOB, ChatId("g-declined"))

    for account in range(20):
        cheap = UserId(f"cheap-{account}")
        await container.directory.put_user_if_absent(cheap, cheap, now_s)
        await invite(cheap, ChatId(f"g-s{account}"), None, "member", [BOB])
        if account == 15:
            await invite(UserId("late-friend"), ChatId("g-late"), None, "member", [BOB])

    found = await pending(container, BOB)
    assert len(found) == 7
    assert {"g-early", "g-late"} <= set(found)
    await invite(CAROL, ChatId("g-declined"), None, "member", [BOB])
    assert "g-declined" not in await pending(container, BOB)


async def test_invitation_is_invalid_once_its_inviter_may_not_invite(
    container: StorageContainer,
) -> None:
    """Invitations of former managers and of blocked users add no member."""
    chat = (await create(container)).chat
    await container.invitations.invite(CAROL, ChatId(chat), None, "member", [BOB])

    with pytest.raises(NotFound, match="no longer valid"):
        await change(container, BOB, frames.AcceptInvitation, chat)

    await container.invitations.decline(BOB, ChatId(chat))
    second = (await create(container, BOB)).chat
    await container.moderation.block(BOB, ALICE)
    with pytest.raises(Forbidden):
        await change(container, BOB, frames.AcceptInvitation, second)


async def test_user_at_the_chat_limit_joins_no_other_and_loses_none(
    container: StorageContainer,
) -> None:
    """The next join is refused with the name of the limit. All existing chats stay listed."""
    made = [(await create(container)).chat for _ in range(4)]

    with pytest.raises(BadRequest, match=r"chats\.per_user_max"):
        await create(container)

    assert await chats_of(container, ALICE) == sorted(made)
    await change(container, ALICE, frames.Leave, made[0])
    await create(container)


async def test_chats_of_members_are_counted_once_for_many_groups(
    redis_url: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new group needs no query per member, and the limit still applies."""
    counted: list[str] = []
    count_chats = StoredInvitations.count_chats

    async def count(self: StoredInvitations, user: str, kind: ListedKind, limit: int) -> int:
        counted.append(user)
        return await count_chats(self, user, kind, limit)

    monkeypatch.setattr(StoredInvitations, "count_chats", count)
    chats = config.Chats(per_user_max=4, invitations="never")
    async with open_container(redis_url, tables.settings, chats=chats) as container:
        await make_users(container, ALICE, BOB, CAROL)
        made = [(await create(container, BOB, CAROL)).chat for _ in range(4)]

        assert sorted(counted) == [ALICE, BOB, CAROL]
        with pytest.raises(BadRequest, match=r"chats\.per_user_max"):
            await create(container, BOB)
        await change(container, BOB, frames.Leave, made[0])
        await container.chat_creator.create_chat(BOB, Ref(f"b{next(_numbers)}"), [], None)
        with pytest.raises(BadRequest, match=r"chats\.per_user_max"):
            await container.chat_creator.create_chat(BOB, Ref(f"b{next(_numbers)}"), [], None)


async def test_strangers_who_open_direct_chats_do_not_fill_the_list(
    container: StorageContainer,
) -> None:
    """Empty chats are listed only for their openers. Others do not count toward the group limit."""
    strangers = [UserId(f"s{number}") for number in range(6)]
    await make_users(container, *strangers)
    mine = [(await container.chat_creator.create_chat(BOB, Ref("mine"), [], "Mine")).chat]
    for stranger in strangers:
        await container.chat_creator.open_direct(stranger, BOB)

    assert await chats_of(container, BOB) == mine
    await container.user_loader.load_user(BOB)
    assert [box.chat for box in await container.inboxes.list_chats(BOB)] == mine

    async with running(persister_of(container).run()):
        for stranger in strangers:
            audience = await container.audiences.get(direct_chat_id(stranger, BOB))
            await Gateway(container.hot).send(audience, "buy this", sender=stranger)
        await eventually(lambda: is_drained(container))

    listed = [box.chat for box in await container.inboxes.list_chats(BOB)]
    assert set(listed) == {*mine, *(direct_chat_id(stranger, BOB) for stranger in strangers)}
    assert set(await chats_of(container, BOB)) == set(listed)
    await container.chat_creator.create_chat(BOB, Ref("more"), [], "More")
    await container.chat_creator.open_direct(BOB, strangers[0])
    with pytest.raises(BadRequest, match=r"chats\.per_user_max"):
        await container.chat_creator.open_direct(BOB, CAROL)


async def test_direct_chats_that_a_user_opens_are_limited(container: StorageContainer) -> None:
    """The error names the limit. Existing direct chats can still be opened."""
    others = [UserId(f"o{number}") for number in range(5)]
    await make_users(container, *others)
    made = [(await container.chat_creator.open_direct(ALICE, other)).chat for other in others[:4]]

    with pytest.raises(BadRequest, match=r"chats\.per_user_max"):
        await container.chat_creator.open_direct(ALICE, others[4])

    assert (await container.chat_creator.open_direct(ALICE, others[0])).chat == made[0]
    await container.chat_creator.open_direct(ALICE, others[4], is_host=True)


async def test_new_direct_chats_with_strangers_are_limited_per_day(
    redis_url: str, tables: Tables
) -> None:
    """Chats with followers of the user and existing chats do not count."""
    chats = config.Chats(new_contacts_per_day=2)
    async with open_container(redis_url, tables.settings, chats=chats) as container:
        others = [UserId(f"c{number}") for number in range(5)]
        await make_users(container, ALICE, *others)
        graph = FollowEdges(container.messages._client)
        await graph.follow(others[4], ALICE, 1)
        for other in others[:2]:
            await container.chat_creator.open_direct(ALICE, other)

        with pytest.raises(RateLimited, match=r"chats\.new_contacts_per_day") as caught:
            await container.chat_creator.open_direct(ALICE, others[2])

        assert 0 < (caught.value.retry_after_ms or 0) <= 86_400_000 / 2
        await container.chat_creator.open_direct(ALICE, others[0])
        await container.chat_creator.open_direct(ALICE, others[4])
        await container.chat_creator.open_direct(ALICE, others[3], is_host=True)


async def test_host_application_adds_members_without_invitation(
    container: StorageContainer,
) -> None:
    """Calls of the host application need no consent."""
    ref = Ref("host")
    made = await container.chat_creator.create_chat(ALICE, ref, [BOB], "Trip", is_host=True)
    info = await container.membership.change(
        ALICE, make_request(frames.Invite, made.chat, users=[CAROL]), is_host=True
    )

    assert set(info.members) == {ALICE, BOB, CAROL}


async def test_member_who_rejoins_has_their_earlier_settings(
    redis_url: str, tables: Tables
) -> None:
    """Hidden messages and mutes are kept. Earlier messages do not count as unread."""
    async with open_container(redis_url, tables.settings) as container:
        chat = (await make_group(container, ALICE, BOB)).chat
        await Gateway(container.hot).send(await container.audiences.get(chat), "one", "two")
        await container.member_state.add_hidden(chat, BOB, [1])
        preferences = container.get(PreferencesContainer).preferences
        await preferences.change(BOB, chat, PreferencesChange(muted_until=0))

        await change(container, BOB, frames.Leave, chat)
        with pytest.raises(NotFound):
            await container.get(PushContainer).muted_chats.get_until(chat, BOB)
        await change(container, ALICE, frames.Invite, chat, users=[BOB])

        _, members = await container.directory.get_chat_with_members(chat)
        (bob,) = [member for member in members if member.user == BOB]
        assert bob.hidden == (1,)
        assert bob.read >= 3 and bob.joined > 3
        assert await container.get(PushContainer).muted_chats.get_until(chat, BOB) == FOR_EVER_MS
