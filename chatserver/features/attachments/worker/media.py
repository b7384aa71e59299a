"""Media worker: determines the dimensions of uploaded images, and creates their thumbnails.

::

    {media}:jobs ─► job ─► read the image from S3 ─► child process ─► thumbnail to S3
        │            │                                    │ broken, too large, too slow
        ▼            └── lease ───────────────────────────┴─► item of the file ─► Redis ─► finished
    {media}:slow: images that need more than `FAST_CPU_S`, images of heavy users, and images whose
                  processing was interrupted: they are tried again later, up to `ATTEMPTS_MAX` times

Fairness: an image that needs more CPU time than `FAST_CPU_S` is moved to the slow queue, which has
its own worker. The images of a user whose recent images took `USER_CPU_S` or more are moved too. In
the normal queue, an image waits at most a few seconds for the images of one other user. The slow
queue is round-robin by user.

A busy machine, a killed worker and an unavailable store say nothing about the image. Only an image
that cannot be decoded, or needs too much CPU time or memory, remains without a thumbnail.

Crash-safe: jobs are idempotent, and another worker claims the job of a crashed worker when the
lease expires.
"""

from __future__ import annotations

import asyncio
import dataclasses

import structlog

from chatserver.container.storage import StorageContainer
from chatserver.domain.clock import Clock
from chatserver.domain.ids import UserId
from chatserver.errors import ClientError, Unavailable
from chatserver.features.attachments.container import AttachmentContainer
from chatserver.features.attachments.hot import JobReader, MediaJob, SlowImage
from chatserver.features.attachments.model import File
from chatserver.features.attachments.service.uploads import IMAGE_BYTES_MAX
from chatserver.features.attachments.worker import thumbnail_process
from chatserver.features.attachments.worker.thumbnail_process import (
    Interrupted,
    Thumb,
    ThumbResult,
    TooSlow,
    make_thumb,
)
from chatserver.hot.redis.client import BLOCK_MS
from chatserver.task_groups import open_task_group
from chatserver.telemetry.failpoints import failpoint

log = structlog.get_logger()

THUMBS_IN_FLIGHT_MAX = 1

TRIES_MAX = 3  # after this many attempts in the normal queue, an image is moved to the slow queue
LEASE_MARGIN_S = 20.0  # part of the lease that is reserved for calls to S3 and DynamoDB
FAST_CPU_S = 2
USER_CPU_S = 5.0
USER_WINDOW_S = 60.0
USERS_MAX = 10_000
SLOW_POLL_S = 0.5
BACKOFF_S = 10.0  # wait before the second attempt; doubles with each further attempt
BACKOFF_S_MAX = 900.0
ATTEMPTS_MAX = 100  # about a day


class UsageByUser:
    """CPU time that this process has spent on each user's images; halved every `USER_WINDOW_S`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self._spent: dict[UserId, float] = {}

    def add(self, user: UserId, seconds: float) -> None:
        self._decay()
        if len(self._spent) < USERS_MAX or user in self._spent:
            self._spent[user] = self._spent.get(user, 0.0) + seconds

    def is_heavy(self, user: UserId) -> bool:
        """Return whether the user's next images belong in the slow queue."""
        self._decay()
        return self._spent.get(user, 0.0) >= USER_CPU_S

    def _decay(self) -> None:
        now = self._clock.monotonic()
        windows = int((now - self._since) / USER_WINDOW_S)
        if windows:
            self._since = now
            share = 0.5**windows
            self._spent = {u: s * share for u, s in self._spent.items() if s * share > 0.1}


class ImageProcessor:
    """Creates the thumbnail of one image and stores the result."""

    def __init__(self, container: StorageContainer, usage: UsageByUser) -> None:
        self._container = container
        self._attachments = container.get(AttachmentContainer)
        self._usage = usage

    async def find_waiting(self, file_id: str) -> File | None:
        """Return the file if it must be processed.

        If it has been processed, publish its result again: a worker may have crashed after it had
        stored the result, but before it published it.
        """
        file = await self._attachments.rows.find_file(file_id)
        if file is not None and (file.is_processed or file.phase != "ready"):
            await self._publish(file)
            return None
        return file

    async def process(self, file: File, cpu_s: int | None = None) -> None:
        """Process an image with at most `cpu_s` of CPU time (default: `THUMB_TIMEOUT_S`).

        Raises:
            TooSlow: the image needs more CPU time.
            Unavailable: the machine is too busy, or a data store is unavailable; nothing is stored.
        """
        failpoint("media.before_look")
        try:
            result = await self._make_thumb(file, cpu_s)
        except TooSlow:
            self._usage.add(file.owner, cpu_s or thumbnail_process.THUMB_TIMEOUT_S)
            raise
        self._usage.add(file.owner, result.cpu_s)
        if result.thumb is not None:
            await self._attachments.objects.put_thumb(file, result.thumb.content)
        failpoint("media.before_conclusion")
        if not await self.store_result(file.id, result.thumb):
            # The file was deleted during processing.
            await self._attachments.objects.remove(file)

    async def _make_thumb(self, file: File, cpu_s: int | None) -> ThumbResult:
        try:
            content = await self._attachments.objects.read(file, IMAGE_BYTES_MAX)
        except ClientError as exc:  # the content is missing or too large
            log.warning("media.read_failed", file=file.id, error=exc.message)
            return ThumbResult(None, 0.0)
        return await make_thumb(content, file.id, cpu_s)

    async def store_result(self, file_id: str, thumb: Thumb | None) -> bool:
        """Store and publish a result; return False if the file has been deleted."""

        def with_result(file: File) -> File:
            if thumb is None:
                return dataclasses.replace(file, is_processed=True)
            return dataclasses.replace(
                file,
                is_processed=True,
                has_thumb=True,
                width=thumb.width,
                height=thumb.height,
            )

        file = await self._attachments.rows.update_file(file_id, with_result)
        failpoint("media.before_news")
        if file is not None:
            await self._publish(file)
        return file is not None

    async def _publish(self, file: File) -> None:
        await self._attachments.sendable.put(file, self._container.clock.time(), is_update=True)


class MediaWorker:
    """Processes the images of the normal queue, one at a time."""

    def __init__(self, *, container: StorageContainer, name: str, usage: UsageByUser) -> None:
        attachments = container.get(AttachmentContainer)
        self._jobs = attachments.media_jobs
        self._slow_images = attachments.slow_images
        self._processor = ImageProcessor(container, usage)
        self._name = name
        self._usage = usage

    async def run(self) -> None:
        """Process images until cancelled; see `run_media`."""
        lease_s = thumbnail_process.WAIT_FACTOR * FAST_CPU_S + LEASE_MARGIN_S
        async with self._jobs.open_reader(self._name, lease_s) as reader:
            while True:
                await self._run_one(reader)

    async def _run_one(self, reader: JobReader) -> None:
        job = await reader.claim(BLOCK_MS)
        if job is None:
            return
        file = await self._processor.find_waiting(job.file)
        if file is None:
            await self._jobs.finish(job)
            return
        if job.tries > TRIES_MAX or self._usage.is_heavy(file.owner):
            await self._move_to_slow_queue(job, file)
            return
        try:
            await self._processor.process(file, FAST_CPU_S)
        except TooSlow:
            await self._move_to_slow_queue(job, file)
        except Interrupted as exc:
            log.info("media.interrupted", file=file.id, reason=exc.message)
            await self._move_to_slow_queue(job, file)
        else:
            await self._jobs.finish(job)

    async def _move_to_slow_queue(self, job: MediaJob, file: File) -> None:
        """Move a job. A crash may leave it in both queues, which is harmless."""
        await self._slow_images.add(file.id, file.owner)
        await self._jobs.finish(job)


class SlowMediaWorker:
    """Processes the images of the slow queue, one at a time, in turns of their owners."""

    def __init__(self, *, container: StorageContainer, usage: UsageByUser) -> None:
        self._queue = container.get(AttachmentContainer).slow_images
        self._processor = ImageProcessor(container, usage)

    async def run(self) -> None:
        """Process images until cancelled; see `run_media`."""
        cpu_s = thumbnail_process.THUMB_TIMEOUT_S
        lease_s = thumbnail_process.WAIT_FACTOR * cpu_s + LEASE_MARGIN_S
        while True:
            image = await self._queue.claim(lease_s)
            if image is None:
                await asyncio.sleep(SLOW_POLL_S)
            else:
                await self._run_one(image)

    async def _run_one(self, image: SlowImage) -> None:
        file = await self._processor.find_waiting(image.file)
        if file is not None and image.attempts > ATTEMPTS_MAX:
            log.warning("media.abandoned", file=file.id, attempts=image.attempts)
            await self._processor.store_result(file.id, None)
        elif file is not None:
            try:
                await self._processor.process(file)
            except TooSlow:
                log.info(
                    "media.thumbnail_timed_out",
                    file=file.id,
                    limit_s=thumbnail_process.THUMB_TIMEOUT_S,
                )
                await self._processor.store_result(file.id, None)
            except Unavailable as exc:
                log.info("media.interrupted", file=file.id, reason=exc.message)
                wait_s = min(BACKOFF_S * 2 ** min(image.attempts - 1, 10), BACKOFF_S_MAX)
                await self._queue.postpone(image, wait_s)
                return
        await self._queue.finish(image)


async def run_media(container: StorageContainer, owner: str) -> None:
    """Process images until cancelled: `THUMBS_IN_FLIGHT_MAX` concurrently, plus one slow image.

    Raises:
        Unavailable: a data store is unavailable; restart the worker.
    """
    usage = UsageByUser(container.clock)
    async with open_task_group() as group:
        for number in range(THUMBS_IN_FLIGHT_MAX):
            worker = MediaWorker(container=container, name=f"{owner}-{number}", usage=usage)
            group.create_task(worker.run(), name=f"media-{number}")
        slow_worker = SlowMediaWorker(container=container, usage=usage)
        group.create_task(slow_worker.run(), name="media-slow")
