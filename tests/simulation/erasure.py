"""A user of the HTTP API who is erased during the run, and the check that nothing is left of them.

The user has no device. They write to a group and to a direct chat with users of the run. These
chats are not in the history, because the server deletes their messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import zstandard

from chatserver.domain.clock import SystemClock
from chatserver.service.access.api_keys import ApiKeys
from chatserver.warm.api_keys import StoredApiKeys
from tests.simulation.api import ApiClient, Refused
from tests.simulation.dynamodb.client import make_client
from tests.simulation.redis.values import SortedSet, Stream

if TYPE_CHECKING:
    from tests.simulation.play import Play

USER = "erased"
MARK = "canary"  # in everything that the user writes
DEADLINE_S = 400.0


class ErasedUser:
    """The user, their chats, and the state of the erasure."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self._cluster = play.cluster
        self._client = ApiClient(play.cluster)
        self.chats: list[str] = []
        self._sent = 0
        self._key = ""
        self._receipt = ""
        self._is_erased = False

    async def open(self) -> None:
        """Create the user and their chats."""
        client = make_client(self._cluster.dynamodb, self._cluster.settings.warm)
        keys = ApiKeys(StoredApiKeys(client), SystemClock())
        self._key = (await keys.create("simulation", ["users:erase"]))[1]
        await self._cluster.add_users([USER])
        users = self._play.users
        direct = await self._ask("PUT", f"/v1/direct-chats/{users[0]}")
        group = await self._ask("POST", "/v1/chats", members=users[1:3], name=f"group of {USER}")
        self.chats = [direct["chat"], group["chat"]]

    async def _ask(self, method: str, path: str, **body: object) -> dict[str, str]:
        token = self._cluster.token(USER)
        answer: dict[str, str] = await self._client.request(method, path, token, **body)
        return answer

    async def write(self, count: int) -> None:
        """Send messages, and edit every other one, unless the user is erased."""
        for _ in range(count):
            if self._is_erased:
                return
            self._sent += 1
            number, chat = self._sent, self.chats[self._sent % len(self.chats)]
            path = f"/v1/chats/{chat}/messages"
            try:
                sent = await self._ask("POST", path, body=f"{MARK} {number}", ref=f"e{number}")
                if number % 2:
                    await self._ask("PATCH", f"{path}/{sent['seq']}", body=f"{MARK} again {number}")
            except Refused:
                if not self._is_erased:
                    raise

    async def erase(self) -> None:
        """Start the erasure."""
        self._is_erased = True
        receipt = await self._client.request("DELETE", f"/v1/admin/users/{USER}", self._key)
        self._receipt = receipt["receipt"]

    async def finish_and_check(self) -> None:
        """Wait until the user is erased, and check that no store and no device has their text.

        Raises:
            AssertionError: something is left, or the erasure does not end.
        """
        if not self._is_erased:
            await self.erase()
        loop = asyncio.get_running_loop()
        give_up, path = loop.time() + DEADLINE_S, f"/v1/erasures/{self._receipt}"
        while (receipt := await self._client.request("GET", path, self._key))["state"] != "done":
            if loop.time() > give_up:
                raise AssertionError(f"{USER} is not erased within {DEADLINE_S:g} s: {receipt}")
            await asyncio.sleep(1.0)
        left = [name for name, content in self._iter_stored() if MARK.encode() in content]
        left += [f"device {name}" for name in await self._find_devices()]
        if left:
            raise AssertionError(f"ERASURE: the text of {USER} is still in {', '.join(left)}")

    async def _find_devices(self) -> list[str]:
        """Return the devices that show text of the user, from the server or from their store."""
        found = []
        for number, chat in ((0, self.chats[0]), (1, self.chats[1]), (2, self.chats[1])):
            device = self._play.first(number)
            whole = await device.read_whole(chat)
            if any(MARK in entry.body for entry in whole):
                found.append(f"{device.name} (history of {chat})")
        return found

    def _iter_stored(self) -> Iterator[tuple[str, bytes]]:
        """Yield the names and contents of all Redis keys, items and objects."""
        for key, value in self._cluster.redis.keyspace.values.items():
            yield f"Redis {key.decode()}", _dump(value).encode()
        for table in self._cluster.dynamodb.server.tables.values():
            for _, item in table.items.iter_all():
                yield f"{table.name} {table.get_key(item)!r}", msgspec.json.encode(item)
        for name, found in self._cluster.objects.bucket.objects.items():
            yield f"S3 {name}", found.data
            if name.startswith("archive/"):
                yield f"S3 {name}", zstandard.ZstdDecompressor().decompress(found.data)


def _dump(value: object) -> str:
    """Return the contents of a Redis value as text."""
    match value:
        case Stream():
            return repr(value.entries)
        case SortedSet():
            return repr(value.order)
        case _:
            return repr(value)
