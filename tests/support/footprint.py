"""Storage footprint of messages: Redis keys by kind, DynamoDB units, S3 objects.

One run on real servers: chats are opened, messages are committed like gateways do, the persist
worker writes them and the archive worker moves them. `chatserver plan` must predict the measured
values; the constants of its capacity model come from such a run.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import random
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, UserId
from chatserver.domain.messages import Audience
from chatserver.hot.users.inbox import parse_entry
from chatserver.service.messaging.inbox_delivery import deliver_to_all
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.schema.tables import MessageField
from tests.integration.workers.support import (
    Gateway,
    is_drained,
    make_direct,
    make_group,
    persister_of,
    running,
)
from tests.support.servers.processes import eventually

_DOCS = Path(__file__).parents[2] / "docs"


@cache
def _text() -> str:
    """Return a text in natural language."""
    found = " ".join(path.read_text("utf-8") for path in sorted(_DOCS.glob("*.md")))
    return found.encode("ascii", "ignore").decode()


def body_of(number: int, size: int) -> str:
    """Return an excerpt of the documentation with this size."""
    start = random.Random(number).randrange(len(_text()) - size)
    return _text()[start : start + size]


@dataclasses.dataclass
class RedisUsage:
    """Bytes, keys, and entries of streams in Redis, by kind of key."""

    bytes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    keys: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    entries: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    used: int = 0


async def measure_redis(container: StorageContainer) -> RedisUsage:
    """Count the keys of the whole server."""
    usage, hot = RedisUsage(), container.hot
    for key in await hot.call("KEYS", "{p0}:*"):
        kind = key.decode().split(":")[1]
        usage.bytes[kind] += int(await hot.call("MEMORY", "USAGE", key, "SAMPLES", 0))
        usage.keys[kind] += 1
        if kind == "inbox":  # an entry may have several messages
            usage.entries[kind] += sum(
                len(parse_entry(*entry)) for entry in await hot.call("XRANGE", key, "-", "+")
            )
        elif kind in ("log", "backlog"):
            usage.entries[kind] += int(await hot.call("XLEN", key))
    info: bytes = await hot.call("INFO", "memory")
    usage.used = int(dict(_lines(info))["used_memory"])
    return usage


def _lines(info: bytes) -> list[tuple[str, str]]:
    rows = [line.split(":", 1) for line in info.decode().splitlines() if ":" in line]
    return [(name, value) for name, value in rows]


@dataclasses.dataclass(frozen=True)
class Run:
    """A number of messages of one size in each of the chats."""

    container: StorageContainer
    chats: Sequence[Audience]
    messages: int
    size: int

    async def send_messages(self) -> None:
        """Commit all messages and persist them."""
        gateway = Gateway(self.container.hot)
        # Ids have the length of real ones, 26 characters. They are only stored as text.
        gateway._numbers = (f"{n:025d}" for n in itertools.count(1))  # type: ignore[assignment]
        for audience in self.chats:
            sender = sorted(audience.users)[0]
            bodies = [body_of(n, self.size) for n in range(self.messages)]
            await gateway.send(audience, bodies[0], sender=UserId(sender))
            current = await self._deliver_first(audience)
            for start in range(1, len(bodies), 50):
                await gateway.send(current, *bodies[start : start + 50], sender=UserId(sender))
        async with running(persister_of(self.container).run()):
            await eventually(lambda: is_drained(self.container), 60.0)

    async def _deliver_first(self, audience: Audience) -> Audience:
        """Deliver the first message of a direct chat like a gateway; the commit does not."""
        if audience.inline_users:
            return audience
        container = self.container
        current = await container.audiences.get_fresh(audience.chat)
        await deliver_to_all(container.inboxes, container.device_delivery, current, current.top)
        await container.undelivered_chats.finish([(audience.chat, current.top)])
        return await container.audiences.get_fresh(audience.chat)


async def make_chats(
    container: StorageContainer, directs: int, groups: int, members: int
) -> list[Audience]:
    """Create direct chats and groups of `members` users each; no user is in two chats."""
    made = [
        await make_direct(container, UserId(f"direct-a-{n}"), UserId(f"direct-b-{n}"))
        for n in range(directs)
    ]
    for n in range(groups):
        users = [UserId(f"group-{n}-member-{m}") for m in range(members)]
        made.append(await make_group(container, *users, ref=f"g{n}"))
    return made


def item_bytes(item: Mapping[str, Mapping[str, object]]) -> int:
    """Return an item's size as counted by DynamoDB: UTF-8 names and values, number digits."""
    total = 0
    for name, value in item.items():
        ((kind, held),) = value.items()
        total += len(name)
        match kind:
            case "S":
                total += len(str(held).encode())
            case "N":
                digits = str(held).lstrip("-").strip("0")
                total += (len(digits) + 1) // 2 + 1
            case "BOOL":
                total += 1
            case _:
                raise AssertionError(f"{name}: {kind}")
    return total


async def items_of(
    client: DynamoClient, table: str, chat: ChatId
) -> list[dict[str, dict[str, str]]]:
    """Return all items of a chat."""
    request = {
        "TableName": table,
        "KeyConditionExpression": f"{MessageField.CHAT} = :chat",
        "ExpressionAttributeValues": {":chat": {"S": chat}},
    }
    answer = await client.call("query", request)
    found: list[dict[str, dict[str, str]]] = answer["Items"]
    return found


def index_bytes(item: Mapping[str, Mapping[str, object]]) -> int:
    """Return the size of an item's index rows: table and index keys, plus 100 bytes each."""
    keys = {MessageField.CHAT, MessageField.TS}
    own = (
        {MessageField.SENDER},
        {MessageField.RECEIVER},
        {MessageField.STATUS_TS},
        {MessageField.FILES_OF},
    )
    rows = [{name: item[name] for name in keys | names} for names in own if names <= set(item)]
    return sum(item_bytes(row) + 100 for row in rows)
