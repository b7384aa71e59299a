"""`chatserver trace`: a message in all tiers, also while one of them is down."""

from __future__ import annotations

import dataclasses
import json
import secrets
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner

from chatserver.cli.main import cli
from chatserver.config import Settings
from chatserver.domain.ids import ChatId, Mid, MidSource, Seq, UserId
from chatserver.domain.inboxes import ListedChat
from chatserver.hot.users.inbox import Inboxes
from chatserver.operations.trace import cli as command
from chatserver.operations.trace.model import Trace
from tests.integration.workers.archive.support import World
from tests.integration.workers.support import (
    Gateway,
    is_drained,
    make_direct,
    persister_of,
    running,
)
from tests.support.servers.processes import eventually, free_port

pytest_plugins = [
    "tests.integration.warm.fixtures",
    "tests.integration.features.attachments.fixtures",
    "tests.integration.workers.archive.fixtures",
]

pytestmark = pytest.mark.asyncio(loop_scope="session")

BODY = "a secret that nobody may see"


@dataclasses.dataclass
class Said:
    """A message of a direct chat of two users that no other test knows."""

    world: World
    chat: ChatId
    mid: Mid
    alice: UserId
    bob: UserId

    async def trace(
        self, *, chat: bool = False, user: bool = False, settings: Settings | None = None
    ) -> Trace:
        """Look for it, by the mid alone unless more is given."""
        found, why, problems = await self.look(chat=chat, user=user, settings=settings)
        assert found is not None, (why, problems)
        return found

    async def look(
        self, *, chat: bool = False, user: bool = False, settings: Settings | None = None
    ) -> tuple[Trace | None, str, list[str]]:
        """As `trace`, whatever comes of it."""
        place = (self.chat if chat else None, self.bob if user else None)
        made = settings or self.world.container.settings
        return await command._trace(made, self.mid, place, 10_000, 50)

    async def mark(self, *, read: int, received: int) -> None:
        """Move bob's read and received marks, as a device does."""
        hot, inboxes = self.world.container.hot, Inboxes(self.world.container.hot)
        epoch = hot.epoch_of(hot.keys.partition_of(self.bob))
        await inboxes.open_box(self.bob, [ListedChat(self.chat, Seq(0), Seq(0))], epoch)
        await inboxes.mark(self.bob, self.chat, Seq(read), Seq(received))

    async def persist(self) -> None:
        """Let the persister do its work."""
        async with running(persister_of(self.world.container).run()):
            await eventually(lambda: is_drained(self.world.container), deadline_s=30)

    async def evict(self) -> None:
        """Evict the chat from Redis, as after a week without use."""
        hot, chat = self.world.container.hot, self.chat
        keys = hot.keys
        await hot.call("UNLINK", keys.chat(chat), keys.log(chat), keys.members(chat))
        await hot.call("ZREM", keys.idle(keys.partition_of(chat)), chat)

    async def archive(self) -> None:
        """Let the archive take it: here all that is older than a second moves."""
        world = dataclasses.replace(self.world, chat=self.chat)

        async def is_archived() -> bool:
            await world.visit()
            return (await world.container.manifests.get_top(self.chat)).seq >= 2

        await eventually(is_archived, deadline_s=30)


@pytest_asyncio.fixture(loop_scope="session")
async def said(aging: World) -> Said:
    """Two messages, of which the second is looked for, committed by a gateway's own code."""
    alice, bob = (UserId(f"{stem}-{secrets.token_hex(4)}") for stem in ("alice", "bob"))
    container, mids = aging.container, MidSource()
    audience = await make_direct(container, alice, bob)
    sender, mid = Gateway(container.hot), mids.next()
    await sender.send(audience, "the first", sender=alice)
    await sender.send(
        audience, BODY, sender=alice, tail=lambda tail: tail.replace(b'"M2"', f'"{mid}"'.encode())
    )
    return Said(aging, audience.chat, mid, alice, bob)


def away(settings: Settings, section: str) -> Settings:
    """Settings with the address of one tier unreachable."""
    address = f"127.0.0.1:{free_port()}"
    update: dict[str, Any] = {"endpoint": f"http://{address}", "call_timeout_s": 1.0}
    if section == "redis":
        update = {"url": f"redis://{address}/0"}
    changed = getattr(settings, section).model_copy(update=update)
    return settings.model_copy(update={section: changed})


async def test_trace_follows_a_message_from_the_backlog_to_the_archive(said: Said) -> None:
    """By its mid alone: committed, waiting, persisted, received and read, archived, checksummed."""
    waiting = await said.trace()
    await said.persist()
    stored = await said.trace()
    await said.mark(read=1, received=2)
    marked = await said.trace(user=True)
    await said.persist()
    await said.archive()
    hot = await said.trace()
    await said.evict()
    archived, by_chat, by_user = (
        await said.trace(),
        await said.trace(chat=True),
        await said.trace(user=True),
    )

    assert archived == by_chat == by_user
    for each in (waiting, stored, marked, hot, archived):
        assert (each.found.chat, each.found.seq, each.found.sender) == (said.chat, 2, said.alice)
        assert each.problems == []
        assert each.hot is not None and each.hot.is_open is (each is not archived)
        assert BODY not in json.dumps(command.as_json(each))
    assert waiting.found.source == "backlog" and waiting.waiting is not None
    assert (waiting.is_persisted, waiting.warm, waiting.cold) == (False, None, None)
    assert stored.is_persisted and stored.warm is not None
    assert (stored.warm.checksum, stored.warm.body_bytes) == ("right", len(BODY))
    people = {each.user: each for each in marked.recipients}
    assert marked.members == 2 and people[said.alice].is_sender
    bob = people[said.bob]
    # No inbox: the first messages of a direct chat wait for a fan-out, which does not run here.
    assert (bob.inbox, bob.has_received, bob.has_read) == (None, True, False)
    assert (hot.found.source, archived.found.source) == ("hot", "cold")
    assert archived.warm is None and archived.cold is not None
    assert archived.cold.first <= 2 <= archived.cold.last and archived.cold.checksum == "right"
    assert archived.is_persisted and archived.archived_upto == 2


@pytest.mark.parametrize("tier", ["redis", "warm", "cold"])
async def test_trace_names_a_tier_that_is_down_and_asks_the_others(said: Said, tier: str) -> None:
    """The message is found in the other tiers; unknown facts are marked."""
    await said.persist()
    if tier == "cold":
        await said.archive()

    found = await said.trace(chat=True, settings=away(said.world.container.settings, tier))

    assert found.found.seq == 2 and found.problems
    if tier == "redis":
        assert found.found.source == "warm" and found.hot is None
        assert found.is_persisted and "Redis" in found.problems[0]
        assert [each.gateways for each in found.recipients] == [None, None]
    elif tier == "warm":
        assert found.found.source == "hot" and found.warm is None
        assert found.is_persisted and found.archived_upto is None
        assert {each.user for each in found.recipients} == {said.alice, said.bob}
    else:
        assert found.cold is not None and found.cold.checksum == "unread"
    text = "\n".join(f"{name} {line}" for name, line in command.trace_lines(found))
    assert found.problems[0] in text and BODY not in text


async def test_trace_of_a_mid_that_nobody_gave_says_where_it_was_looked_for(said: Said) -> None:
    """The answer names the bound; nothing is found in another's place."""
    said.mid = MidSource().next()

    anywhere = await said.look()
    there = await said.look(chat=True)

    assert anywhere[0] is None and "no such message in the backlog or in" in anywhere[1]
    assert there[0] is None and said.chat in there[1]


async def test_trace_of_what_is_no_mid_is_refused_before_any_tier_is_asked() -> None:
    """One clear error, exit code 2."""
    result = CliRunner().invoke(cli, ["trace", "not-a-mid"])

    assert result.exit_code == 2
    assert "mid: must be a ULID" in result.output
