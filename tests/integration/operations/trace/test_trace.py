"""`chatserver trace` finds a message in all tiers, also while one of them is down."""

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
    make_direct,
    persist,
)
from tests.support.servers.processes import eventually, free_port

pytest_plugins = [
    "tests.integration.features.attachments.fixtures",
    "tests.integration.workers.archive.fixtures",
]

pytestmark = pytest.mark.asyncio(loop_scope="session")

BODY = "a secret that nobody may see"


@dataclasses.dataclass
class TracedMessage:
    """A message in a direct chat of two users that no other test uses."""

    world: World
    chat: ChatId
    mid: Mid
    alice: UserId
    bob: UserId

    async def trace(
        self, *, chat: bool = False, user: bool = False, settings: Settings | None = None
    ) -> Trace:
        """Trace the message by its mid alone, or also by its chat or user. It must be found."""
        found, why, problems = await self.find(chat=chat, user=user, settings=settings)
        assert found is not None, (why, problems)
        return found

    async def find(
        self, *, chat: bool = False, user: bool = False, settings: Settings | None = None
    ) -> tuple[Trace | None, str, list[str]]:
        """Return the trace or None, the reason for None, and the problems."""
        scope = (self.chat if chat else None, self.bob if user else None)
        used = settings or self.world.container.settings
        return await command._trace(used, self.mid, scope, 10_000, 50)

    async def mark(self, *, read: int, received: int) -> None:
        hot, inboxes = self.world.container.hot, Inboxes(self.world.container.hot)
        epoch = hot.get_epoch(hot.keys.get_partition(self.bob))
        await inboxes.open_user_state(self.bob, [ListedChat(self.chat, Seq(0), Seq(0))], epoch)
        await inboxes.mark(self.bob, self.chat, Seq(read), Seq(received))

    async def persist(self) -> None:
        """Run a persist worker until the backlog is empty."""
        await persist(self.world.container)

    async def evict(self) -> None:
        """Evict the chat from Redis, as after a week without use."""
        hot, chat = self.world.container.hot, self.chat
        keys = hot.keys
        await hot.call("UNLINK", keys.chat(chat), keys.log(chat), keys.members(chat))
        await hot.call("ZREM", keys.idle(keys.get_partition(chat)), chat)

    async def archive(self) -> None:
        world = dataclasses.replace(self.world, chat=self.chat)

        async def is_archived() -> bool:
            await world.archive_old()
            return (await world.container.manifests.get_top(self.chat)).seq >= 2

        await eventually(is_archived, deadline_s=30)


@pytest_asyncio.fixture(loop_scope="session")
async def message(archive_world: World) -> TracedMessage:
    """Commit two messages like a gateway; the second one is traced."""
    alice, bob = (UserId(f"{stem}-{secrets.token_hex(4)}") for stem in ("alice", "bob"))
    container, mids = archive_world.container, MidSource()
    audience = await make_direct(container, alice, bob)
    sender, mid = Gateway(container.hot), mids.next()
    await sender.send(audience, "the first", sender=alice)
    await sender.send(
        audience, BODY, sender=alice, tail=lambda tail: tail.replace(b'"M2"', f'"{mid}"'.encode())
    )
    return TracedMessage(archive_world, audience.chat, mid, alice, bob)


def with_tier_down(settings: Settings, section: str) -> Settings:
    """Return settings in which the address of one tier is unreachable."""
    address = f"127.0.0.1:{free_port()}"
    update: dict[str, Any] = {"endpoint": f"http://{address}", "call_timeout_s": 1.0}
    if section == "redis":
        update = {"url": f"redis://{address}/0"}
    changed = getattr(settings, section).model_copy(update=update)
    return settings.model_copy(update={section: changed})


async def test_trace_follows_a_message_from_the_backlog_to_the_archive(
    message: TracedMessage,
) -> None:
    """The mid alone finds the commit, persistence, receipt, reading, archive and checksum."""
    waiting = await message.trace()
    await message.persist()
    stored = await message.trace()
    await message.mark(read=1, received=2)
    marked = await message.trace(user=True)
    await message.persist()
    await message.archive()
    hot = await message.trace()
    await message.evict()
    archived, by_chat, by_user = (
        await message.trace(),
        await message.trace(chat=True),
        await message.trace(user=True),
    )

    assert archived == by_chat == by_user
    for each in (waiting, stored, marked, hot, archived):
        assert (each.found.chat, each.found.seq, each.found.sender) == (
            message.chat,
            2,
            message.alice,
        )
        assert each.problems == []
        assert each.hot is not None and each.hot.is_open is (each is not archived)
        assert BODY not in json.dumps(command.as_json(each))
    assert waiting.found.source == "backlog" and waiting.waiting is not None
    assert (waiting.is_persisted, waiting.warm, waiting.cold) == (False, None, None)
    assert stored.is_persisted and stored.warm is not None
    assert (stored.warm.checksum, stored.warm.body_bytes) == ("right", len(BODY))
    people = {each.user: each for each in marked.recipients}
    assert marked.members == 2 and people[message.alice].is_sender
    bob = people[message.bob]
    # There is no inbox: the first messages of a direct chat wait for a fan-out, which does not run
    # here.
    assert (bob.inbox, bob.has_received, bob.has_read) == (None, True, False)
    assert (hot.found.source, archived.found.source) == ("hot", "cold")
    assert archived.warm is None and archived.cold is not None
    assert archived.cold.first <= 2 <= archived.cold.last and archived.cold.checksum == "right"
    assert archived.is_persisted and archived.archived_upto == 2


@pytest.mark.parametrize("tier", ["redis", "warm", "cold"])
async def test_trace_with_a_tier_down_names_it_and_reads_the_others(
    message: TracedMessage, tier: str
) -> None:
    """The message is found in the other tiers; unknown values are None."""
    await message.persist()
    if tier == "cold":
        await message.archive()

    found = await message.trace(
        chat=True, settings=with_tier_down(message.world.container.settings, tier)
    )

    assert found.found.seq == 2 and found.problems
    if tier == "redis":
        assert found.found.source == "warm" and found.hot is None
        assert found.is_persisted and "cannot connect" in found.problems[0]
        assert [each.gateways for each in found.recipients] == [None, None]
    elif tier == "warm":
        assert found.found.source == "hot" and found.warm is None
        assert found.is_persisted and found.archived_upto is None
        assert {each.user for each in found.recipients} == {message.alice, message.bob}
    else:
        assert found.cold is not None and found.cold.checksum == "unread"
    text = "\n".join(f"{name} {line}" for name, line in command.build_trace_lines(found))
    assert found.problems[0] in text and BODY not in text


async def test_trace_of_an_unknown_mid_reports_where_it_searched(message: TracedMessage) -> None:
    """The reason names the searched stores, and no other message is returned."""
    message.mid = MidSource().next()

    anywhere = await message.find()
    in_chat = await message.find(chat=True)

    assert anywhere[0] is None and "no such message in the backlog or in" in anywhere[1]
    assert in_chat[0] is None and message.chat in in_chat[1]


async def test_trace_of_an_invalid_mid_exits_with_2() -> None:
    """The format is checked before any tier is read."""
    result = CliRunner().invoke(cli, ["trace", "not-a-mid"])

    assert result.exit_code == 2
    assert "mid: must be a ULID" in result.output
