"""Sessions with companions: completion of interrupted changes, and the assistant's catalog."""

from __future__ import annotations

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, Ref, UserId
from chatserver.errors import BadRequest
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.model import VersionChanges, session_chat_id
from chatserver.features.companions.service.sessions import Opened
from chatserver.protocol import frames
from tests.integration.workers.support import ALICE, BOB, Gateway
from workers.delivery_repair import RepairWorker

ADA = CompanionId(UserId("ai-ada"))


class Killed(BaseException):
    """Stands for a kill of the process."""


@pytest.fixture
async def opened(container: StorageContainer) -> Opened:
    fields = VersionChanges("Ada", "Be kind.", "scripted", "echo")
    await container.get(CompanionContainer).companions.create("ai-ada", fields)
    return await container.get(CompanionContainer).sessions.create(ALICE, ADA, Ref("s1"))


def kill_at(monkeypatch: pytest.MonkeyPatch, failpoint: str) -> None:
    """Raise `Killed` at a failpoint of the session service."""

    def reach(name: str) -> None:
        if name == failpoint:
            raise Killed

    monkeypatch.setattr("chatserver.features.companions.service.sessions.failpoint", reach)


async def read_gate(container: StorageContainer, chat: ChatId) -> str:
    """Return the `gate` field of a chat in Redis: its version and write policy."""
    gate: bytes = await container.hot.call("HGET", container.hot.keys.chat(chat), "gate")
    return gate.decode()


@pytest.mark.parametrize("operation", ["delete", "renew"])
@pytest.mark.parametrize("completed_by", ["repair", "load"])
async def test_session_end_killed_before_redis_is_completed(
    container: StorageContainer,
    opened: Opened,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    completed_by: str,
) -> None:
    """The repair worker or the next load of the chat completes it. The chat is then read-only."""
    monkeypatch.setattr("chatserver.features.companions.service.sessions.HOLD_S", 0)
    chat = opened.session.chat
    kill_at(monkeypatch, "sessions.before_close")
    with pytest.raises(Killed):
        if operation == "delete":
            await container.get(CompanionContainer).sessions.delete(ALICE, ADA)
        else:
            await container.get(CompanionContainer).sessions.renew(ALICE, ADA, Ref("n1"))
    assert not (await read_gate(container, chat)).endswith(":e")

    if completed_by == "repair":
        assert await RepairWorker(container, 0, "w1").finish_changes() >= 1
        assert await container.hot.call("ZCARD", container.hot.keys.changing(0)) == 0
    else:
        await container.hot.call("DEL", container.hot.keys.chat(chat))
        await container.chat_loader.load_chat(chat)

    assert (await read_gate(container, chat)).endswith(":e")
    assert (await container.audiences.get_fresh(chat)).is_ended


async def test_renewal_killed_before_its_chat_is_completed_by_get(
    container: StorageContainer, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`get` creates the chat that the row names, and a retry of the renewal finds it."""
    kill_at(monkeypatch, "sessions.before_chat")
    with pytest.raises(Killed):
        await container.get(CompanionContainer).sessions.renew(ALICE, ADA, Ref("n1"))

    found = await container.get(CompanionContainer).sessions.get(ALICE, ADA)
    again = await container.get(CompanionContainer).sessions.renew(ALICE, ADA, Ref("n1"))

    assert found.session == again.session != opened.session
    assert set((await container.audiences.get(found.session.chat)).joined) == {ALICE, ADA}


async def test_companion_has_no_inbox_and_may_write(
    container: StorageContainer, gateway: Gateway, opened: Opened
) -> None:
    """Messages are added only to the user's inbox, but the companion may send."""
    chat = opened.session.chat

    audience = await container.audiences.get(chat)

    assert list(audience.users) == list(audience.inline_users) == [ALICE]
    assert set(audience.sender_packed) == {ALICE, ADA}
    assert await container.hot.call("EXISTS", container.hot.keys.inbox(UserId(ADA))) == 0


async def test_catalog_finds_session_of_a_chat_before_the_index_has_it(
    container: StorageContainer, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index is eventually consistent, but the assistant needs a new session at once."""

    async def find_nothing(chat: ChatId) -> None:
        return None

    monkeypatch.setattr(
        container.get(CompanionContainer).session_rows, "find_by_chat", find_nothing
    )

    found = await container.get(CompanionContainer).catalog.find_session_by_chat(
        opened.session.chat
    )
    other = await container.get(CompanionContainer).catalog.find_session_by_chat(ChatId("g-team"))
    absent = await container.get(CompanionContainer).catalog.find_session_by_chat(
        session_chat_id(ALICE, ADA, Ref("never"), 1_795_000_000.0)
    )

    assert found == opened.session
    assert other is None and absent is None


async def test_loaded_user_has_the_newest_sessions_and_all_other_chats(
    container: StorageContainer, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old sessions do not displace other chats from the user state."""
    monkeypatch.setattr("chatserver.service.chats.user_loader.COMPANION_CHATS_MAX", 2)
    for user in (ALICE, BOB):
        await container.directory.put_user_if_absent(user, None, container.clock.time())
    direct = (await container.chat_creator.open_direct(ALICE, BOB)).chat
    chats = [opened.session.chat]
    for number in range(4):
        renewed = await container.get(CompanionContainer).sessions.renew(
            ALICE, ADA, Ref(f"n{number}")
        )
        chats.append(renewed.session.chat)
    await container.hot.call("DEL", container.hot.keys.box(ALICE))

    await container.user_loader.load_user(ALICE)

    listed = {box.chat for box in await container.inboxes.list_chats(ALICE)}
    assert listed == {direct, *chats[-2:]}


async def test_session_refuses_membership_changes(
    container: StorageContainer, opened: Opened
) -> None:
    """Its members are always the user and the companion."""
    invite = frames.Invite(0, opened.session.chat, "r1", ["bob"])
    with pytest.raises(BadRequest, match="companion chat"):
        await container.membership.change(ALICE, invite)
    with pytest.raises(BadRequest, match="companion chat"):
        await container.membership.change(ALICE, frames.Leave(0, opened.session.chat, "r2"))
