"""Legal holds: what members lose is kept, by whatever way they lose it, until the hold ends."""

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
from tests.integration.workers.persist.test_message_changes import amend, persist
from tests.integration.workers.support import ALICE, BOB, Gateway, make_group
from workers import legal_holds
from workers.legal_holds import HoldKeeper

pytest_plugins = ["tests.integration.warm.fixtures", "tests.integration.workers.fixtures"]

LAWYER = "key:lawyer"


class _Dead(Exception):
    """The worker was killed."""


def _die(name: str) -> None:
    raise _Dead(name)


@pytest.fixture
async def team(container: StorageContainer) -> Audience:
    """A chat that is going to be under a hold."""
    return await make_group(container, ALICE, BOB)


async def hold(container: StorageContainer, team: Audience, age_s: float = 60) -> None:
    """Put a chat under a hold, as of a while ago."""
    await container.holds.put(team.chat, "a case", LAWYER, time.time() - age_s)


async def kept(container: StorageContainer, team: Audience) -> list[str]:
    """Messages kept by the hold, in order."""
    return [each.body for each in await copies(container, team)]


async def copies(container: StorageContainer, team: Audience) -> list[frames.Message]:
    found: list[frames.Message] = []
    start = None
    while True:
        page = await container.holds.list_copies(team.chat, 2, start)
        found += page.items
        start = page.next
        if start is None:
            return found


async def send_brief(gateway: Gateway, team: Audience, body: str, lives_s: int) -> None:
    """Commit a message that expires."""
    ends = int(time.time()) + lives_s
    await gateway.send(team, body, tail=lambda tail: codec.end_tail(tail, ends))


@pytest.mark.parametrize("is_one_batch", [False, True])
async def test_hold_keeps_every_version_that_members_change_or_delete(
    container: StorageContainer, gateway: Gateway, team: Audience, is_one_batch: bool
) -> None:
    """Also a text that never reached DynamoDB, because the same batch changed it."""
    await gateway.send(team, "stays", "first", "second")
    await hold(container, team)
    if not is_one_batch:
        await persist(container)
    await amend(container, team.chat, ALICE, "edit", 2, "first, edited")
    if not is_one_batch:
        await persist(container)
    await amend(container, team.chat, ALICE, "edit", 2, "first, edited again")
    await amend(container, team.chat, ALICE, "delete", 2)
    await amend(container, team.chat, ALICE, "delete", 3)
    await amend(container, team.chat, BOB, "reaction", 1, "+")
    await persist(container)

    said = await kept(container, team)

    await container.chat_loader.load_chat(team.chat)  # the row of the hold is in nobody's way
    lost = ["first", "second", "first, edited", "first, edited again"]
    assert [body for body in said if body != "stays"] == lost
    assert {each.sender for each in await copies(container, team)} == {ALICE}


async def test_chat_without_a_hold_keeps_nothing(
    container: StorageContainer, gateway: Gateway, team: Audience
) -> None:
    """Messages that members delete are gone, as promised."""
    await gateway.send(team, "first", "second")
    await persist(container)
    await amend(container, team.chat, ALICE, "edit", 1, "edited")
    await amend(container, team.chat, ALICE, "delete", 2)
    await persist(container)

    assert await kept(container, team) == []


async def test_hold_keeps_what_expires_of_before_and_after(
    container: StorageContainer, gateway: Gateway, team: Audience, tables: Tables
) -> None:
    """Items stored before are copied by the worker, later ones when they are stored."""
    await send_brief(gateway, team, "before", 600)
    await gateway.send(team, "stays")
    await persist(container)
    await hold(container, team)
    await send_brief(gateway, team, "after", 600)
    await persist(container)
    await HoldKeeper(container, "w1").sweep()

    assert (await container.holds.get(team.chat)).state == "in_force"
    assert await kept(container, team) == ["before", "after"]
    held = [
        item for item in await tables.scan(MESSAGES.name) if item["chatid"]["S"].endswith("#held")
    ]
    # Nothing that an index or TTL reads: they stay, and nobody else finds them.
    assert {name for item in held for name in item} == {"chatid", "ts", "seq", "copy", "body"}


async def test_hold_that_is_new_waits_for_who_does_not_know_of_it(
    container: StorageContainer, gateway: Gateway, team: Audience
) -> None:
    """A writer that read before that there is no hold has ended when what is stored is copied."""
    await send_brief(gateway, team, "before", 600)
    await persist(container)
    await hold(container, team, age_s=0)

    await HoldKeeper(container, "w1").sweep()

    assert (await container.holds.get(team.chat)).state == "starting"


async def test_hold_that_ends_leaves_nothing_and_may_begin_anew(
    container: StorageContainer, gateway: Gateway, team: Audience, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in between, the next pass goes on; put again before that, it stays in force."""
    await gateway.send(team, "first", "second", "third")
    await hold(container, team)
    for seq in (1, 2, 3):
        await amend(container, team.chat, ALICE, "delete", seq)
    await persist(container)
    keeper = HoldKeeper(container, "w1")
    await keeper.sweep()
    await container.holds.end(team.chat)
    await container.holds.end(team.chat)
    await hold(container, team)
    await keeper.sweep()
    assert len(await kept(container, team)) == 3

    await container.holds.end(team.chat)
    with monkeypatch.context() as patch, pytest.raises(_Dead):
        patch.setattr(legal_holds, "failpoint", _die)
        await keeper.sweep()
    assert (await container.holds.list_chats(10)).items == [team.chat]
    await keeper.sweep()

    assert await kept(container, team) == []
    assert (await container.holds.list_chats(10)).items == []
    with pytest.raises(NotFound):
        await container.holds.get(team.chat)


async def test_hold_keeps_a_text_that_is_erased(
    container: StorageContainer, gateway: Gateway, team: Audience
) -> None:
    """An erasure takes the text from everybody; the copy stays until the hold ends."""
    await gateway.send(team, "mine")
    await persist(container)
    await hold(container, team)
    (entry,) = (await container.message_indexes.list_chat(team.chat, limit=10)).items

    await container.get(PrivacyContainer).eraser.erase(UserId(ALICE), entry)
    await persist(container)

    assert await kept(container, team) == ["mine"]
