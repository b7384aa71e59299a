"""Uploads that may be sent, as gateways look them up, and the queue of the media worker.

Data: ``{pN}:file:<file>`` (string, msgpack, expires when the upload may no longer be sent): a copy
of what the directory has, and only of uploads that no message has yet. Whoever does not find one
here asks the directory. ``{media}:jobs`` and ``{media}:slow-jobs`` (streams, bounded): ids of
images, read by one consumer group of all `media` workers; an entry is acknowledged and deleted when
its job is over. Images that take long are moved to the second one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import redis.exceptions

from chatserver.domain.attachments import File
from chatserver.errors import Unavailable
from chatserver.hot.client import HotClient

JOBS_MAX = 10_000
_GROUP = "media"
_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(File)


def encode_file(file: File) -> bytes:
    """Return a file as it travels between our processes."""
    return _encode(file)


def decode_file(data: bytes) -> File:
    """Return the file of `encode_file`."""
    return _decoder.decode(data)


class SendableFiles:
    """Uploads that may be sent."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    async def find(self, files: Sequence[str]) -> list[File | None]:
        """Return what is known here of each file. Costs one Redis round trip."""
        keys = [self._hot.keys.file(file) for file in files]
        found = await asyncio.gather(*(self._hot.call("GET", key) for key in keys))
        return [None if data is None else decode_file(data) for data in found]

    async def put(self, file: File, now_s: float, *, is_news: bool) -> None:
        """Keep a file that may be sent; of any other nothing is kept.

        `is_news`: it has just changed; else it may be older than what is here, and does not replace
        it. What changed while a message took it is forgotten here: the directory has it as it is.
        """
        if file.phase != "ready" or file.seqs or file.due is None or file.due <= now_s:
            if is_news:
                await self.drop([file.id])
            return
        mode = () if is_news else ("NX",)
        key = self._hot.keys.file(file.id)
        await self._hot.write("SET", key, encode_file(file), "EXAT", file.due, *mode)

    async def drop(self, files: Iterable[str]) -> None:
        """Forget files: gateways ask the directory from now on. Idempotent."""
        keys = [self._hot.keys.file(file) for file in files]
        await asyncio.gather(*(self._hot.call("DEL", key) for key in keys))


class Job(NamedTuple):
    """An image to be looked at; `tries` counts this time too. `key`: the stream it came from."""

    entry: str
    file: str
    tries: int
    key: str


class MediaJobs:
    """Images that wait to be looked at, in two lanes."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    async def add(self, file: str) -> None:
        """Queue an image.

        A job that falls off the bounded stream leaves its image without a thumbnail.
        """
        await self._add(self._hot.keys.media_jobs(), file)

    async def defer(self, job: Job) -> None:
        """Move a job to the slow lane. A kill in between leaves it in both, which does no harm."""
        await self._add(self._hot.keys.slow_media_jobs(), job.file)
        await self.finish(job)

    async def _add(self, key: str, file: str) -> None:
        await self._hot.call("XADD", key, "MAXLEN", "~", JOBS_MAX, "*", "f", file)

    async def finish(self, job: Job) -> None:
        """Delete a job."""
        await self._hot.call("XACK", job.key, _GROUP, job.entry)
        await self._hot.call("XDEL", job.key, job.entry)

    def reader(self, consumer: str, lease_s: float, *, is_slow: bool = False) -> JobReader:
        """Return one worker's view of a lane; see `JobReader`."""
        keys = self._hot.keys
        key = keys.slow_media_jobs() if is_slow else keys.media_jobs()
        return JobReader(self._hot, key, consumer, lease_s)


class JobReader:
    """Takes jobs: new ones, and those of workers that died."""

    def __init__(self, hot: HotClient, key: str, consumer: str, lease_s: float) -> None:
        self._hot = hot
        self._key = key
        self._consumer = consumer
        self._lease_ms = int(lease_s * 1000)
        self._client: Any = None

    async def __aenter__(self) -> JobReader:
        self._client = self._hot.blocking_client(self._key)
        try:
            await self._hot.create_group(self._key, _GROUP)
        except BaseException:
            await self._client.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def take(self, wait_ms: int) -> Job | None:
        """Return a job, waiting up to `wait_ms` for one; None if there is none.

        Guarantees:
            Nobody else gets it for `lease_s`; after that, whoever has not finished it has lost it.

        Raises:
            Unavailable: Redis went away; start again.
        """
        try:
            return await self._take_left() or await self._take_new(wait_ms)
        except (redis.exceptions.RedisError, OSError) as exc:
            raise Unavailable(f"redis at {self._hot.name}: {exc}") from exc

    async def _take_left(self) -> Job | None:
        waiting = await self._hot.within(
            self._client.xpending_range(
                self._key, _GROUP, min="-", max="+", count=1, idle=self._lease_ms
            )
        )
        if not waiting:
            return None
        entry, tries = waiting[0]["message_id"], waiting[0]["times_delivered"]
        claimed = await self._hot.within(
            self._client.xclaim(
                self._key, _GROUP, self._consumer, min_idle_time=self._lease_ms, message_ids=[entry]
            )
        )
        if not claimed:
            # It fell off the stream, or another worker was faster.
            if not await self._hot.call("XRANGE", self._key, entry, entry):
                await self._hot.call("XACK", self._key, _GROUP, entry)
            return None
        return self._job(claimed[0], tries + 1)

    async def _take_new(self, wait_ms: int) -> Job | None:
        reply = await self._hot.within(
            self._client.xreadgroup(
                _GROUP, self._consumer, {self._key: ">"}, count=1, block=wait_ms
            )
        )
        return self._job(reply[0][1][0], 1) if reply else None

    def _job(self, entry: tuple[bytes, dict[bytes, bytes]], tries: int) -> Job:
        name, fields = entry
        return Job(name.decode(), fields.get(b"f", b"").decode(), tries, self._key)
