"""Redis data of attachments: metadata of sendable files, and the media worker's queues.

Keys:

- `{pN}:file:<file>` (string, msgpack): a copy of the file's item in the `directory` table. The copy
  exists while the file may be sent and no message references the file. If there is no copy, the
  item is read.
- `{media}:jobs` (bounded stream): ids of images to process. All `media` workers are in one consumer
  group. An entry is deleted when its job has finished.

Images that take long are in a queue that is round-robin by user:

- ``{media}:slow`` (zset): image → its position. The images of a user get consecutive positions,
  from the current one on, so the first image of each user comes before the second of any user.
- ``{media}:held`` (zset): image that is being processed or has failed → when it may be claimed
  again (ms).
- ``{media}:images`` (hash): image → ``<attempts> <owner>``, for the images in both zsets.
- ``{media}:turns`` (hash): user → position of the user's last image. The field ``*`` is the
  current position. Deleted when the queue is empty.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, NamedTuple

import attrs
import msgspec
import redis.exceptions

from chatserver.domain.ids import UserId
from chatserver.errors import REDIS_DOWN, Unavailable
from chatserver.features.attachments.keys import AttachmentKeys
from chatserver.features.attachments.model import File
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import load_script

JOBS_MAX = 10_000
SLOW_IMAGES_MAX = 10_000
_GROUP = "media"
_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(File)


def encode_file(file: File) -> bytes:
    """Encode the metadata of a file for Redis and RPC."""
    return _encode(file)


def decode_file(data: bytes) -> File:
    """Decode the output of `encode_file`."""
    return _decoder.decode(data)


class SendableFiles:
    """The metadata, in Redis, of files that may be sent."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot
        self._keys = AttachmentKeys(hot.keys.partitions)

    async def find(self, files: Sequence[str]) -> list[File | None]:
        """Return the metadata of each file, or None if Redis does not have it. One round trip."""
        keys = [self._keys.file(file) for file in files]
        values = await asyncio.gather(*(self._hot.call("GET", key) for key in keys))
        return [None if data is None else decode_file(data) for data in values]

    async def put(self, file: File, now_s: float, *, is_update: bool) -> None:
        """Store the metadata of a file if it may be sent and no message references it.

        With `is_update`, replace existing metadata, or delete it if a condition no longer holds.
        Otherwise keep existing metadata, because it can be newer than `file`.
        """
        if file.phase != "ready" or file.seqs or file.due is None or file.due <= now_s:
            if is_update:
                await self.drop([file.id])
            return
        mode = () if is_update else ("NX",)
        key = self._keys.file(file.id)
        await self._hot.write("SET", key, encode_file(file), "EXAT", file.due, *mode)

    async def drop(self, files: Iterable[str]) -> None:
        """Delete metadata from Redis; gateways then read the `directory` table. Idempotent."""
        keys = [self._keys.file(file) for file in files]
        await asyncio.gather(*(self._hot.call("DEL", key) for key in keys))


class MediaJob(NamedTuple):
    """An image to process. `entry` is the stream entry's id. `tries` has the current attempt."""

    entry: str
    file: str
    tries: int


class MediaJobs:
    """Queue of images to process."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot
        self._key = AttachmentKeys(hot.keys.partitions).jobs()

    async def add(self, file: str) -> None:
        """Queue an image. If the queue is full, its oldest images are dropped without a result."""
        await self._hot.call("XADD", self._key, "MAXLEN", "~", JOBS_MAX, "*", "f", file)

    async def finish(self, job: MediaJob) -> None:
        """Acknowledge and delete a job."""
        await self._hot.call("XACK", self._key, _GROUP, job.entry)
        await self._hot.call("XDEL", self._key, job.entry)

    @contextlib.asynccontextmanager
    async def open_reader(self, consumer: str, lease_s: float) -> AsyncIterator[JobReader]:
        """Open a reader of the queue, for one worker."""
        client = self._hot.create_blocking_client(self._key)
        try:
            await self._hot.create_group(self._key, _GROUP)
            yield JobReader(
                hot=self._hot,
                key=self._key,
                consumer=consumer,
                lease_ms=int(lease_s * 1000),
                client=client,
            )
        finally:
            await client.aclose()


@attrs.define(eq=False, repr=False, kw_only=True)
class JobReader:
    """Claims new jobs, and jobs whose worker has crashed."""

    _hot: HotClient
    _key: str
    _consumer: str
    _lease_ms: int
    _client: Any

    async def claim(self, wait_ms: int) -> MediaJob | None:
        """Claim a job, waiting up to `wait_ms` for one. Return None if there is none.

        Guarantees:
            Other workers cannot claim the job until `lease_s` has passed.

        Raises:
            Unavailable: Redis is unavailable; open a new reader.
        """
        try:
            return await self._claim_abandoned() or await self._claim_new(wait_ms)
        except (redis.exceptions.RedisError, OSError) as exc:
            raise Unavailable(f"redis at {self._hot.name}: {exc}", public=REDIS_DOWN) from exc

    async def _claim_abandoned(self) -> MediaJob | None:
        waiting = await self._hot.with_deadline(
            self._client.xpending_range(
                self._key, _GROUP, min="-", max="+", count=1, idle=self._lease_ms
            )
        )
        if not waiting:
            return None
        entry, tries = waiting[0]["message_id"], waiting[0]["times_delivered"]
        claimed = await self._hot.with_deadline(
            self._client.xclaim(
                self._key, _GROUP, self._consumer, min_idle_time=self._lease_ms, message_ids=[entry]
            )
        )
        if not claimed:
            # The job was trimmed from the stream, or another worker claimed it first.
            if not await self._hot.call("XRANGE", self._key, entry, entry):
                await self._hot.call("XACK", self._key, _GROUP, entry)
            return None
        return self._decode_job(claimed[0], tries + 1)

    async def _claim_new(self, wait_ms: int) -> MediaJob | None:
        reply = await self._hot.with_deadline(
            self._client.xreadgroup(
                _GROUP, self._consumer, {self._key: ">"}, count=1, block=wait_ms
            )
        )
        return self._decode_job(reply[0][1][0], 1) if reply else None

    def _decode_job(self, entry: tuple[bytes, dict[bytes, bytes]], tries: int) -> MediaJob:
        name, fields = entry
        return MediaJob(name.decode(), fields.get(b"f", b"").decode(), tries)


class SlowImage(NamedTuple):
    """An image to process. `attempts` includes the current one."""

    file: str
    attempts: int


class SlowImages:
    """The queue of slow images."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot
        keys = AttachmentKeys(hot.keys.partitions)
        self._keys = {
            "slow": keys.slow_images(),
            "held": keys.held_images(),
            "images": keys.image_attempts(),
            "turns": keys.image_turns(),
        }

    async def add(self, file: str, owner: UserId) -> None:
        """Queue an image, unless it is already queued.

        If the queue is full, the image with the latest turn is dropped without a result: it belongs
        to a user with many images.
        """
        await self._hot.run(
            load_script("add_slow_image"),
            self._keys,
            {"file": file, "owner": owner, "images_max": SLOW_IMAGES_MAX},
        )

    async def claim(self, lease_s: float) -> SlowImage | None:
        """Claim the next image. Return None if there is none.

        Guarantees:
            Other workers cannot claim the image until `lease_s` has passed.
        """
        lease_ms = int(lease_s * 1000)
        reply = await self._hot.run(
            load_script("claim_slow_image"), self._keys, {"lease_ms": lease_ms}
        )
        return SlowImage(reply[0].decode(), int(reply[1])) if reply else None

    async def postpone(self, image: SlowImage, wait_s: float) -> None:
        """Let a claimed image wait for `wait_s` before the next attempt."""
        due_ms = await self._hot.get_time_ms(self._keys["held"]) + int(wait_s * 1000)
        await self._hot.call("ZADD", self._keys["held"], "XX", due_ms, image.file)

    async def finish(self, image: SlowImage) -> None:
        """Remove a claimed image. Idempotent."""
        await self._hot.run(load_script("finish_slow_image"), self._keys, {"file": image.file})
