"""Legal holds: messages that members change, delete or let expire are copied during the hold."""

from __future__ import annotations

import time

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.domain.messages import Audience
from chatserver.errors import NotFound
from chatserver.features.privacy.container import PrivacyContainer
from chatserver.protocol import codec, frames
from chatserver.warm.schema.tables import MESSAGES
from tests.integration.warm.support import Tables
from tests.integration.workers.persist.test_message_changes import commit_change, persist
from tests.integration.workers.support import ALICE, BOB, Gateway, make_group
from workers import legal_hold_transitions
from workers.legal_hold_transitions import LegalHoldWorker

LAWYER = "key:lawyer"


class _Crashed(Exception):
    """Raised at a failpoint in place of a process crash."""


def _crash(name: str) -> None:
    raise _Crashed(name)


@pytest.fixture
async def team(container: StorageContainer) -> Audience:
    """A chat without a hold; tests add one."""
    return await make_group(container, ALICE, BOB)


async def add_hold(container: StorageContainer, team: Audience, age_s: float = 60) -> None:
    """Put a chat under a hold that was created `age_s` ago."""
    await container.holds.put(team.chat, "a case", LAWYER, time.time() - age_s)


async def list_copied_bodies(container: StorageContainer, team: Audience) -> list[str]:
    """Return the bodies of the messages that the hold has copied, in order."""
    return [each.body for each in await list_copies(container, team)]


async def list_copies(container: StorageContainer, team: Audience) -> list[frames.Message]:
    found: list[frames.Message] = []
    start = None
    while True:
        page = await container.holds.list_copies(team.chat, 2, start)
        found += page.items
        start = page.next
        if start is None:
            return found


async def send_expiring(gateway: Gateway, team: Audience, body: str, lifetime_s: int) -> None:
    """Commit a message that expires."""
    expires_at = int(time.time()) + lifetime_s
    await gateway.send(team, body, tail=lambda tail: codec.add_expiry(tail, expires_at))


@pytest.mark.parametrize("is_one_batch", [False, True])
async def test_hold_copies_every_changed_or_deleted_version(
    container: StorageContainer, gateway: Gateway, team: Audience, is_one_batch: bool
) -> None:
    """This includes a text that never reached DynamoDB because the same batch changed it."""
    await gateway.send(team, "stays", "first", "second")
    await add_hold(container, team)
    if not is_one_batch:
        await persist(container)
    await commit_change(container, team.chat, ALICE, "edit", 2, "first, edited")
    if not is_one_batch:
        await persist(container)
    await commit_change(container, team.chat, ALICE, "edit", 2, "first, edited again")
    await commit_change(container, team.chat, ALICE, "delete", 2)
    await commit_change(container, team.chat, ALICE, "delete", 3)
    await commit_change(container, team.chat, BOB, "reaction", 1, "+")
    await persist(container)

    copied = await list_copied_bodies(container, team)

    await container.chat_loader.load_chat(team.chat)  # the item of the hold does not affect a load
    lost = ["first", "second", "first, edited", "first, edited again"]
    assert [body for body in copied if body != "stays"] == lost
    assert {each.sender for each in await list_copies(container, team)} == {ALICE}


async def test_chat_without_a_hold_copies_nothing(
    container: StorageContainer, gateway: Gateway, team: Audience
) -> None:
    """Changed and deleted texts are not copied."""
    await gateway.send(team, "first", "second")
    await persist(container)
    await commit_change(container, team.chat, ALICE, "edit", 1, "edited")
    await commit_change(container, team.chat, ALICE, "delete", 2)
    await persist(container)

    assert await list_copied_bodies(container, team) == []


async def test_hold_copies_expiring_messages_sent_before_and_after_it(
    container: StorageContainer, gateway: Gateway, team: Audience, tables: Tables
) -> None:
    """The worker copies earlier items; later ones are copied when they are stored."""
    await send_expiring(gateway, team, "before", 600)
    await gateway.send(team, "stays")
    await persist(container)
    await add_hold(container, team)
    await send_expiring(gateway, team, "after", 600)
    await persist(container)
    await LegalHoldWorker(container, "w1").sweep()

    assert (await container.holds.get(team.chat)).state == "in_force"
    assert await list_copied_bodies(container, team) == ["before", "after"]
    held = [
        item for item in await tables.scan(MESSAGES.name) if item["chatid"]["S"].endswith("#held")
    ]
    # Copies have no attribute of an index or of TTL.
    assert {name for item in held for name in item} == {"chatid", "ts", "seq", "copy", "body"}


async def test_new_hold_waits_for_writers_that_have_not_read_it(
    container: StorageContainer, gateway: Gateway, team: Audience
) -> None:
    """Items are copied once all writers that read the state before the hold have ended."""
    await send_expiring(gateway, team, "before", 600)
    await persist(container)
    await add_hold(container, team, age_s=0)

    await LegalHoldWorker(container, "w1").sweep()

    assert (await container.holds.get(team.chat)).state == "starting"


async def test_ended_hold_leaves_no_copies_and_can_be_created_again(
    container: StorageContainer, gateway: Gateway, team: Audience, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run completes a crashed removal. A hold that is added again stays in force."""
    await gateway.send(team, "first", "second", "third")
    await add_hold(container, team)
    for seq in (1, 2, 3):
        await commit_change(container, team.chat, ALICE, "delete", seq)
    await persist(container)
    keeper = LegalHoldWorker(container, "w1")
    await keeper.sweep()
    await container.holds.end(team.chat)
    await container.holds.end(team.chat)
    await add_hold(container, team)
    await keeper.sweep()
    assert len(await list_copied_bodies(container, team)) == 3

    await container.holds.end(team.chat)
    with monkeypatch.context() as patch, pytest.raises(_Crashed):
        patch.setattr(legal_hold_transitions, "failpoint", _crash)
        await keeper.sweep()
    assert (await container.holds.list_chats(10)).items == [team.chat]
    await keeper.sweep()

    assert await list_copied_bodies(container, team) == []
    assert (await container.holds.list_chats(10)).items == []
    with pytest.raises(NotFound):
        await container.holds.get(team.chat)


async def test_hold_copies_an_erased_text(
    container: StorageContainer, gateway: Gateway, team: Audience
) -> None:
    """An erasure removes the text for all users, but the copy stays until the hold ends."""
    await gateway.send(team, "mine")
    await persist(container)
    await add_hold(container, team)
    (entry,) = (await container.message_indexes.list_chat(team.chat, limit=10)).items

    await container.get(PrivacyContainer).eraser.erase(UserId(ALICE), entry)
    await persist(container)

    assert await list_copied_bodies(container, team) == ["mine"]
