"""Sessions with companions in the workers: what a dead one leaves, and the assistant's catalog."""

from __future__ import annotations

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, Ref, UserId
from chatserver.errors import BadRequest
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.model import Changes, session_chat_id
from chatserver.features.companions.service.sessions import Opened
from chatserver.protocol import frames
from tests.integration.workers.support import ALICE, BOB, Gateway
from workers.repair import RepairWorker

pytest_plugins = ["tests.integration.warm.fixtures", "tests.integration.workers.fixtures"]

ADA = CompanionId(UserId("ai-ada"))


class Died(BaseException):
    """In the place of a process that is killed."""


@pytest.fixture
async def begun(container: StorageContainer) -> Opened:
    """A session of alice's."""
    wanted = Changes("Ada", "Be kind.", "scripted", "echo")
    await container.get(CompanionContainer).companions.create("ai-ada", wanted)
    return await container.get(CompanionContainer).sessions.create(ALICE, ADA, Ref("s1"))


def die_at(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Let the use cases die where a failpoint is."""

    def reach(name: str) -> None:
        if name == place:
            raise Died

    monkeypatch.setattr("chatserver.features.companions.service.sessions.failpoint", reach)


async def gate_of(container: StorageContainer, chat: ChatId) -> str:
    """Return the gate of a chat as Redis has it."""
    gate: bytes = await container.hot.call("HGET", container.hot.keys.chat(chat), "gate")
    return gate.decode()


@pytest.mark.parametrize("way", ["delete", "renew"])
@pytest.mark.parametrize("healer", ["repair", "load"])
async def test_end_that_died_before_redis_knew_is_finished_by_others(
    container: StorageContainer,
    begun: Opened,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    healer: str,
) -> None:
    """The chat of an ended session accepts nothing, whichever process completes the end."""
    monkeypatch.setattr("chatserver.features.companions.service.sessions.HOLD_S", 0)
    chat = begun.session.chat
    die_at(monkeypatch, "sessions.before_close")
    with pytest.raises(Died):
        if way == "delete":
            await container.get(CompanionContainer).sessions.delete(ALICE, ADA)
        else:
            await container.get(CompanionContainer).sessions.renew(ALICE, ADA, Ref("n1"))
    assert not (await gate_of(container, chat)).endswith(":e")

    if healer == "repair":
        assert await RepairWorker(container, 0, "w1").finish_changes() >= 1
        assert await container.hot.call("ZCARD", container.hot.keys.changing(0)) == 0
    else:
        await container.hot.call("DEL", container.hot.keys.chat(chat))
        await container.chat_loader.load_chat(chat)

    assert (await gate_of(container, chat)).endswith(":e")
    assert (await container.audiences.get_fresh(chat)).is_ended


async def test_renewal_that_died_before_its_chat_gets_it_with_the_next_look(
    container: StorageContainer, begun: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row names the new chat; `get` makes it, and a repeat of the request finds it."""
    die_at(monkeypatch, "sessions.before_chat")
    with pytest.raises(Died):
        await container.get(CompanionContainer).sessions.renew(ALICE, ADA, Ref("n1"))

    found = await container.get(CompanionContainer).sessions.get(ALICE, ADA)
    again = await container.get(CompanionContainer).sessions.renew(ALICE, ADA, Ref("n1"))

    assert found.session == again.session != begun.session
    assert set((await container.audiences.get(found.session.chat)).joined) == {ALICE, ADA}


async def test_companion_has_no_inbox_and_may_write(
    container: StorageContainer, gateway: Gateway, begun: Opened
) -> None:
    """Messages are appended to the user's inbox only, whoever sends them."""
    chat = begun.session.chat

    audience = await container.audiences.get(chat)

    assert list(audience.users) == list(audience.inline_users) == [ALICE]
    assert set(audience.sender_packed) == {ALICE, ADA}
    assert await container.hot.call("EXISTS", container.hot.keys.inbox(UserId(ADA))) == 0


async def test_book_finds_the_session_of_a_chat_before_the_index_knows(
    container: StorageContainer, begun: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The assistant is asked at once, and must not take a session for none."""

    async def blind(chat: ChatId) -> None:
        return None

    monkeypatch.setattr(container.get(CompanionContainer).session_rows, "find_by_chat", blind)

    found = await container.get(CompanionContainer).catalog.find_session_by_chat(begun.session.chat)
    other = await container.get(CompanionContainer).catalog.find_session_by_chat(ChatId("g-team"))
    absent = await container.get(CompanionContainer).catalog.find_session_by_chat(
        session_chat_id(ALICE, ADA, Ref("never"), 1_795_000_000.0)
    )

    assert found == begun.session
    assert other is None and absent is None


async def test_box_lists_the_newest_sessions_beside_all_other_chats(
    container: StorageContainer, begun: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user with daily new sessions still gets their other chats."""
    monkeypatch.setattr("chatserver.service.chats.user_loader.COMPANION_CHATS_MAX", 2)
    for user in (ALICE, BOB):
        await container.directory.put_user_if_absent(user, None, container.clock.time())
    direct = (await container.chat_creator.open_direct(ALICE, BOB)).chat
    chats = [begun.session.chat]
    for number in range(4):
        renewed = await container.get(CompanionContainer).sessions.renew(
            ALICE, ADA, Ref(f"n{number}")
        )
        chats.append(renewed.session.chat)
    await container.hot.call("DEL", container.hot.keys.box(ALICE))

    await container.user_loader.load_user(ALICE)

    listed = {box.chat for box in await container.inboxes.list_chats(ALICE)}
    assert listed == {direct, *chats[-2:]}


async def test_group_cannot_be_made_of_a_session(
    container: StorageContainer, begun: Opened
) -> None:
    """Its two members stay its two members."""
    invite = frames.Invite(0, begun.session.chat, "r1", ["bob"])
    with pytest.raises(BadRequest, match="companion chat"):
        await container.membership.change(ALICE, invite)
    with pytest.raises(BadRequest, match="companion chat"):
        await container.membership.change(ALICE, frames.Leave(0, begun.session.chat, "r2"))
