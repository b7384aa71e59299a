"""Redis data for the indexer: its position in each backlog, and the requests that it handles.

All of this data is in fields of ``{pN}:checkpoint``:

- ``indexed``, ``indexed_ms``: the last backlog entry in the index, and when this was recorded.
  Later entries stay in the backlog for up to a minute, even if they are persisted. If the indexer
  is further behind, the fields are removed, and the indexer reads the chats that have changed.
- ``reindex``: id of the newest rebuild request
- ``erase:<user>``: ``asked`` until the user has been erased from the index, then ``done``

The requests for an index partition are stored in the lowest of its Redis partitions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from chatserver.domain.ids import ChatId
from chatserver.errors import LostRace
from chatserver.features.search.model import ORIGIN
from chatserver.hot.chats.persist_backlog import BacklogEntry, parse_entry
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import load_script
from chatserver.hot.worker_leases import Lease

WORK: Final = "search"
ASKED: Final = "asked"
DONE: Final = "done"
_ERASE: Final = "erase:"
_REINDEX: Final = "reindex"
IDLE_PAGE: Final = 1_000


class Requests(NamedTuple):
    """Requests to an indexer: the rebuild request, and the users to erase from the index."""

    rebuild: str
    erasures: list[str]


class RecordResult(NamedTuple):
    """Result of `record_position`.

    `is_complete`: the backlog still has all entries after the recorded position. `persisted`: id of
    the last persisted entry.
    """

    is_complete: bool
    persisted: str


class IndexFeed:
    """The indexer's positions and requests in Redis."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    async def record_position(self, lease: Lease, partition: int, position: str) -> RecordResult:
        """Record the indexer's position in a partition's backlog.

        If the backlog may no longer have all entries after `position`, record the id of the last
        persisted entry as the position instead. Also trim the entries that are persisted, scanned
        for pushes and indexed.

        Raises:
            LostRace: another process holds the lease.
        """
        keys = self._hot.keys
        status, persisted = await self._hot.run(
            load_script("record_indexed"),
            {
                "lease": keys.lease(partition, WORK),
                "checkpoint": keys.checkpoint(partition),
                "backlog": keys.backlog(partition),
            },
            {"token": lease.token, "id": position},
        )
        if status == 0:
            raise LostRace("search: another process holds the lease")
        return RecordResult(status == 1, persisted.decode())

    async def get_persisted(self, partition: int) -> str:
        """Return the id of the last persisted backlog entry."""
        value = await self._hot.call("HGET", self._hot.keys.checkpoint(partition), "id")
        return bytes(value).decode() if value else ORIGIN

    async def list_entries(
        self, partition: int, after: str, upto: str, limit: int
    ) -> list[BacklogEntry]:
        """Return the backlog entries after `after`, up to `upto`, oldest first."""
        key = self._hot.keys.backlog(partition)
        reply = await self._hot.call("XRANGE", key, f"({after}", upto, "COUNT", limit)
        return [parse_entry(name, fields) for name, fields in reply]

    async def list_active_chats(self, partition: int, since_s: int, after: int) -> list[ChatId]:
        """Return up to `IDLE_PAGE` chats active since `since_s`, after skipping `after` chats."""
        names = await self._hot.call(
            "ZRANGEBYSCORE", self._hot.keys.idle(partition), since_s, "+inf",
            "LIMIT", after, IDLE_PAGE,
        )  # fmt: skip
        return [ChatId(name.decode()) for name in names]

    # requests

    async def list_requests(self, partition: int) -> Requests:
        """Return the requests to the indexer of an index partition."""
        reply = await self._hot.call("HGETALL", self._hot.keys.checkpoint(partition))
        fields = {
            name.decode(): value.decode()
            for name, value in zip(reply[::2], reply[1::2], strict=True)
        }
        erasures = [
            name.removeprefix(_ERASE)
            for name, value in fields.items()
            if name.startswith(_ERASE) and value == ASKED
        ]
        return Requests(fields.get(_REINDEX, ""), erasures)

    async def request_rebuild(self, partition: int, request: str) -> None:
        key = self._hot.keys.checkpoint(partition)
        await self._hot.write("HSET", key, _REINDEX, request)

    async def request_erasure(self, partition: int, user: str) -> None:
        key = self._hot.keys.checkpoint(partition)
        if await self.is_erased(partition, user):  # delete the result of an earlier request
            await self.delete_erasure_request(partition, user)
        await self._hot.write("HSET", key, _ERASE + user, ASKED)

    async def finish_erasure(self, partition: int, user: str) -> None:
        """Record that a user has been erased from the index."""
        key = self._hot.keys.checkpoint(partition)
        await self._hot.write("HSET", key, _ERASE + user, DONE)

    async def is_erased(self, partition: int, user: str) -> bool:
        """Return whether a requested erasure is complete."""
        key = self._hot.keys.checkpoint(partition)
        return bool(await self._hot.call("HGET", key, _ERASE + user) == DONE.encode())

    async def delete_erasure_request(self, partition: int, user: str) -> None:
        await self._hot.call("HDEL", self._hot.keys.checkpoint(partition), _ERASE + user)
