"""Media worker: determines the dimensions of uploaded images, and creates their thumbnails.

::

    {media}:jobs ─► job ─► read the image from S3 ─► child process ─► thumbnail to S3
        │            │                                    │ broken, too large, too slow
        ▼            └── lease, TRIES_MAX tries ──────────┴─► item of the file ─► Redis ─► finished
    {media}:slow-jobs: images that need more than `FAST_CPU_S`, and images of heavy users

Fairness: an image that needs more CPU time than `FAST_CPU_S` is moved to the slow queue, which has
its own worker. The images of a user whose recent images took `USER_CPU_S` or more are moved too. In
the normal queue, an image waits at most a few seconds for the images of one other user.

Crash-safe: jobs are idempotent, and another worker claims the job of a crashed worker when the
lease expires. After `TRIES_MAX` attempts, the file remains without a thumbnail.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import sys
from typing import NamedTuple

import structlog

from chatserver.container.storage import StorageContainer
from chatserver.domain.clock import Clock
from chatserver.domain.ids import UserId
from chatserver.errors import ClientError, Unavailable
from chatserver.features.attachments.cold import THUMB_BYTES_MAX
from chatserver.features.attachments.container import AttachmentContainer
from chatserver.features.attachments.hot import Job, JobReader
from chatserver.features.attachments.model import File
from chatserver.features.attachments.service.uploads import IMAGE_BYTES_MAX
from chatserver.hot.redis.client import BLOCK_MS
from chatserver.process_runtime import make_parent_death_hook
from chatserver.task_groups import open_task_group
from chatserver.telemetry.failpoints import failpoint

log = structlog.get_logger()

IMAGE_PIXELS_MAX = 40_000_000  # images with more pixels get no thumbnail
THUMB_PX = 480  # length of the longer side of a thumbnail
THUMB_TIMEOUT_S = 10.0  # limit of the CPU time for a thumbnail
THUMB_MEMORY_BYTES_MAX = 1_073_741_824  # an image that needs more memory gets no thumbnail
THUMBS_IN_FLIGHT_MAX = 1

TRIES_MAX = 3
LEASE_MARGIN_S = 20.0  # part of the lease that is reserved for calls to S3 and DynamoDB
MESSAGE_BYTES_MAX = 300
FAST_CPU_S = 2
# Wall time limit divided by CPU time limit. The child has a low priority, so it can wait long for a
# CPU.
WAIT_FACTOR = 3
USER_CPU_S = 5.0
USER_WINDOW_S = 60.0
USERS_MAX = 10_000
# Exit codes of a child that the kernel has killed because of its CPU time limit.
_LIMIT_EXIT_CODES = (-signal.SIGXCPU, -signal.SIGKILL)


class Thumb(NamedTuple):
    """The dimensions of an image (not of the thumbnail), and the content of its thumbnail."""

    width: int
    height: int
    content: bytes


class TooSlow(Exception):
    """An image exceeded its CPU time limit."""


class UsageByUser:
    """Time that this process has spent on each user's images; halved every `USER_WINDOW_S`."""

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


class MediaWorker:
    """Processes the images of one queue, one at a time."""

    def __init__(
        self, *, container: StorageContainer, name: str, usage: UsageByUser, is_slow: bool = False
    ) -> None:
        self._container = container
        self._jobs = container.get(AttachmentContainer).media_jobs
        self._name = name
        self._usage = usage
        self._is_slow = is_slow

    async def run(self) -> None:
        """Process images until cancelled.

        Raises:
            Unavailable: a data store is unavailable; restart the worker.
        """
        lease_s = WAIT_FACTOR * THUMB_TIMEOUT_S + LEASE_MARGIN_S
        async with self._jobs.make_reader(self._name, lease_s, is_slow=self._is_slow) as reader:
            while True:
                await self._run_one(reader)

    async def _run_one(self, reader: JobReader) -> None:
        job = await reader.claim(BLOCK_MS)
        if job is None:
            return
        if job.tries > TRIES_MAX:
            log.warning("media.abandoned", file=job.file, tries=job.tries)
            await self._store_result(job, None)
            return
        await self._process(job)

    async def _process(self, job: Job) -> None:
        file = await self._container.get(AttachmentContainer).rows.find_file(job.file)
        if file is None or file.is_processed or file.phase != "ready":
            # A worker may have crashed after it stored the result, but before it published it.
            if file is not None:
                await self._publish(file)
            await self._jobs.finish(job)
            return
        failpoint("media.before_look")
        if not self._is_slow and self._usage.is_heavy(file.owner):
            await self._jobs.move_to_slow_queue(job)
            return
        started = self._container.clock.monotonic()
        try:
            thumb = await self._make_thumb(file)
        except TooSlow:
            if not self._is_slow:
                await self._jobs.move_to_slow_queue(job)
                return
            log.info("media.thumbnail_timed_out", file=file.id, limit_s=THUMB_TIMEOUT_S)
            thumb = None
        finally:
            self._usage.add(file.owner, self._container.clock.monotonic() - started)
        if thumb is not None:
            await self._container.get(AttachmentContainer).objects.put_thumb(file, thumb.content)
        failpoint("media.before_conclusion")
        if not await self._store_result(job, thumb):
            # The file was deleted during processing.
            await self._container.get(AttachmentContainer).objects.remove(file)

    async def _make_thumb(self, file: File) -> Thumb | None:
        try:
            content = await self._container.get(AttachmentContainer).objects.read(
                file, IMAGE_BYTES_MAX
            )
        except ClientError as exc:  # the content is missing or too large
            log.warning("media.read_failed", file=file.id, error=exc.message)
            return None
        cpu_s = None if self._is_slow else FAST_CPU_S
        return await make_thumb(content, file.id, cpu_s)

    async def _store_result(self, job: Job, thumb: Thumb | None) -> bool:
        """Store and publish a job's result; return False if the file has been deleted."""

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

        rows = self._container.get(AttachmentContainer).rows
        file = await rows.update_file(job.file, with_result)
        failpoint("media.before_news")
        if file is not None:
            await self._publish(file)
        await self._jobs.finish(job)
        return file is not None

    async def _publish(self, file: File) -> None:
        await self._container.get(AttachmentContainer).sendable.put(
            file, self._container.clock.time(), is_update=True
        )


async def make_thumb(content: bytes, name: str, cpu_s: int | None = None) -> Thumb | None:
    """Create a thumbnail in a child process; return None if the image cannot be decoded.

    Guarantees:
        Bounded: CPU time to `cpu_s` (default: `THUMB_TIMEOUT_S`), wall time to `WAIT_FACTOR` times
            as much, memory to `THUMB_MEMORY_BYTES_MAX`.
        Isolated: the child has the lowest priority and no environment, and exits with this process.
        Cancellation: the child is killed.

    Raises:
        TooSlow: the child exceeded its time limit.
        Unavailable: the child exited before it had read the image.
    """
    limits = (IMAGE_PIXELS_MAX, THUMB_PX, THUMB_MEMORY_BYTES_MAX)
    cpu_s = cpu_s or max(1, round(THUMB_TIMEOUT_S))
    child = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-I",
            "-m",
            "chatserver.features.attachments.worker.thumbnail",
            *map(str, limits),
            str(cpu_s),
        ),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={},
        start_new_session=True,  # see `thumbnail.lower_priority`
        preexec_fn=make_parent_death_hook(),
    )
    try:
        async with asyncio.timeout(WAIT_FACTOR * cpu_s):
            out, error = await child.communicate(content)
    except TimeoutError:
        raise TooSlow from None
    except (BrokenPipeError, ConnectionResetError) as exc:
        raise Unavailable(f"the thumbnail process exited: {exc}") from exc
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode in _LIMIT_EXIT_CODES:
        raise TooSlow
    if child.returncode != 0:
        reason = error.decode(errors="replace")[:MESSAGE_BYTES_MAX]
        log.info("media.image_rejected", file=name, code=child.returncode, reason=reason)
        return None
    return _parse(out)


def _parse(out: bytes) -> Thumb | None:
    """Parse the child's output. It is untrusted, because the child decodes untrusted images."""
    head, _, thumb = out.partition(b"\n")
    try:
        size = json.loads(head)
        width, height = int(size["width"]), int(size["height"])
    except (ValueError, KeyError, TypeError):
        return None
    is_thumb = thumb[:4] == b"RIFF" and thumb[8:12] == b"WEBP" and len(thumb) <= THUMB_BYTES_MAX
    if not is_thumb or not (0 < width < 2**31 and 0 < height < 2**31):
        return None
    return Thumb(width, height, thumb)


async def run_media(container: StorageContainer, owner: str) -> None:
    """Process images until cancelled: `THUMBS_IN_FLIGHT_MAX` concurrently, plus one slow image.

    Raises:
        Unavailable: a data store is unavailable; restart the worker.
    """
    count = THUMBS_IN_FLIGHT_MAX
    usage = UsageByUser(container.clock)
    workers = [
        MediaWorker(container=container, name=f"{owner}-{number}", usage=usage)
        for number in range(count)
    ]
    workers.append(
        MediaWorker(container=container, name=f"{owner}-slow", usage=usage, is_slow=True)
    )
    async with open_task_group() as group:
        for number, worker in enumerate(workers):
            group.create_task(worker.run(), name=f"media-{number}")
