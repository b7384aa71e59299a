"""Item reads by key in which concurrent callers share BatchGetItem calls.

Keys that are requested in the same event loop iteration share a call. While a call is in flight,
new keys wait for its response, for up to `WAIT_S_MAX` seconds.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from chatserver.errors import ChatError, Unavailable
from chatserver.warm.dynamo.batches import READS_MAX, get_items
from chatserver.warm.dynamo.client import DynamoClient, Item, Throttled

WAIT_S_MAX: Final = 0.01
_Key = tuple[tuple[str, str], ...]


@dataclasses.dataclass(eq=False, slots=True)
class _Read:
    """The keys requested by one caller; the keys in `left` have no result yet."""

    keys: Sequence[Item]
    left: set[_Key]
    done: asyncio.Future[list[Item]]
    found: list[Item] = dataclasses.field(default_factory=list)

    def set_item(self, key: _Key, item: Item | None) -> None:
        """Set the item for a key, or None if it does not exist. The last key completes the read."""
        if item is not None:
            self.found.append(item)
        self.left.discard(key)
        if not self.left and not self.done.done():
            self.done.set_result(self.found)

    def fail(self, error: ChatError) -> None:
        """End the read with an error, unless it has ended."""
        if not self.done.done():
            self.done.set_exception(error)


_Batch = dict[_Key, tuple[Item, list[_Read]]]


class BatchedReads:
    """Reads items of one table, up to `READS_MAX` per call. Callers must limit concurrent reads."""

    def __init__(self, client: DynamoClient, table: str) -> None:
        self._client = client
        self._table = table
        self._waiting: _Batch = {}
        self._timer: asyncio.Handle | None = None
        self._in_flight = 0  # number of calls whose first attempt has not finished
        self._tasks: set[asyncio.Task[None]] = set()

    async def get(self, keys: Sequence[Item]) -> list[Item]:
        """Return the existing items of `keys`, in any order. Strongly consistent.

        Guarantees:
            Isolation: one caller's throttled or invalid keys do not fail or delay other callers.
            Order: the items are not read before this is called.
            Cancellation: safe; other callers are not affected.

        Raises:
            Unavailable, CorruptData: as in `get_items`.
        """
        if not keys:
            return []
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[Item]] = loop.create_future()
        named = {_make_hashable(key): key for key in keys}
        read = _Read(keys, set(named), done)
        for name, key in named.items():
            self._waiting.setdefault(name, (key, []))[1].append(read)
        if self._timer is None:
            self._timer = (
                loop.call_later(WAIT_S_MAX, self._send)
                if self._in_flight
                else loop.call_soon(self._send)
            )
        return await done

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = list(self._waiting.items()), {}
        for start in range(0, len(waiting), READS_MAX):
            batch = dict(waiting[start : start + READS_MAX])
            self._in_flight += 1
            task = asyncio.create_task(self._run(batch), name="batched-read")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, batch: _Batch) -> None:
        is_first = True

        async def attempt() -> None:
            nonlocal is_first
            try:
                await self._call(batch)
            finally:
                if is_first:  # retries of this batch must not delay other keys
                    is_first = False
                    self._release()

        try:
            await self._client.retry(attempt)
        except Unavailable as exc:
            for read in _collect_reads(batch):
                read.fail(exc)
        except ChatError as exc:
            # DynamoDB rejected the whole call, perhaps because of one caller's key. Read the keys
            # of each caller in a separate call.
            unread = [read for read in _collect_reads(batch) if not read.done.done()]
            if len(unread) == 1:
                unread[0].fail(exc)
            else:
                await asyncio.gather(*map(self._read_alone, unread))
        finally:
            for read in _collect_reads(batch):
                read.fail(Unavailable("DynamoDB: the read was interrupted; try again"))

    async def _read_alone(self, read: _Read) -> None:
        try:
            items = await get_items(self._client, self._table, read.keys)
        except ChatError as exc:
            read.fail(exc)
        else:
            if not read.done.done():
                read.done.set_result(items)

    async def _call(self, batch: _Batch) -> None:
        """Read a batch once, set the results, and leave the unprocessed keys in `batch`."""
        keys = [key for key, _ in batch.values()]
        request = {"RequestItems": {self._table: {"Keys": keys, "ConsistentRead": True}}}
        response = await self._client.call_once("batch_get_item", request)
        # If all keys were processed, `UnprocessedKeys` does not contain the table.
        rest: Any = (response.get("UnprocessedKeys") or {}).get(self._table, {"Keys": ()})["Keys"]
        unprocessed = {_make_hashable(key) for key in rest}
        attributes = keys[0].keys()
        items = {
            _make_hashable({name: item[name] for name in attributes}): item
            for item in response["Responses"].get(self._table, ())
        }
        for name in [name for name in batch if name not in unprocessed]:
            for read in batch.pop(name)[1]:
                read.set_item(name, items.get(name))
        if batch:
            raise Throttled(
                f"DynamoDB at {self._client.endpoint}: {len(batch)} of {len(keys)} items of "
                f"{self._table} not read: capacity exceeded"
            )

    def _release(self) -> None:
        self._in_flight -= 1
        if self._waiting:
            self._send()


def _collect_reads(batch: _Batch) -> list[_Read]:
    """Return the reads of a batch, once each, in the order of their calls."""
    return list(dict.fromkeys(read for _, readers in batch.values() for read in readers))


def _make_hashable(key: Item) -> _Key:
    """Return a hashable form of a key. Keys of this schema are strings and numbers."""
    return tuple(sorted((name, next(iter(value.values()))) for name, value in key.items()))
