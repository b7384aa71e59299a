"""Looks at images that were uploaded: dimensions and thumbnails.

::

    {media}:jobs ─► job ─► read the image from S3 ─► child process ─► thumbnail to S3
                     │                                    │ no image, a bomb, too slow
                     └── lease, TRIES_MAX tries ──────────┴─► row of the file ─► Redis ─► finished

Dies anywhere: the job is somebody else's after its lease, and doing it again changes nothing. An
image that kills its worker is given up after `TRIES_MAX`: the file stays, without a thumbnail.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from typing import NamedTuple

import structlog

from chatserver.cold.attachments import THUMB_BYTES_MAX
from chatserver.config import Attachments as Settings
from chatserver.domain.attachments import File
from chatserver.errors import ChatError, ClientError, Unavailable
from chatserver.hot.files import Job, JobReader
from chatserver.processes import die_with_parent
from chatserver.telemetry.failpoints import failpoint
from workers.parts import WorkerParts

log = structlog.get_logger()

TRIES_MAX = 3
IDLE_MS = 1000
LEASE_MORE_S = 20.0  # for S3 and DynamoDB, besides the child
MESSAGE_BYTES_MAX = 300


class Thumb(NamedTuple):
    """What a look at an image found."""

    width: int
    height: int
    content: bytes


class MediaWorker:
    """One consumer of the jobs."""

    def __init__(self, parts: WorkerParts, name: str) -> None:
        self._parts = parts
        self._settings = parts.settings.attachments
        self._jobs = parts.media_jobs
        self._name = name

    async def run(self) -> None:
        """Look at images until cancelled.

        Raises:
            Unavailable: a store went away; start again.
        """
        lease_s = self._settings.thumb_timeout_s + LEASE_MORE_S
        async with self._jobs.reader(self._name, lease_s) as reader:
            while True:
                await self._take_one(reader)

    async def _take_one(self, reader: JobReader) -> None:
        job = await reader.take(IDLE_MS)
        if job is None:
            return
        if job.tries > TRIES_MAX:
            log.warning("media.given_up", file=job.file, tries=job.tries)
            await self._conclude(job, None)
            return
        await self._look(job)

    async def _look(self, job: Job) -> None:
        file = await self._parts.files.find_file(job.file)
        if file is None or file.is_looked_at or file.phase != "ready":
            if file is not None:  # who looked may have died before he told
                await self._tell(file)
            await self._jobs.finish(job)
            return
        failpoint("media.before_look")
        thumb = await self._find_thumb(file)
        if thumb is not None:
            await self._parts.objects.put_thumb(file, thumb.content)
        failpoint("media.before_conclusion")
        if not await self._conclude(job, thumb):
            await self._parts.objects.remove(file)  # it went while we looked

    async def _find_thumb(self, file: File) -> Thumb | None:
        try:
            content = await self._parts.objects.read(file, self._settings.image_bytes_max)
        except ClientError as exc:  # it is gone, or too large
            log.warning("media.unreadable", file=file.id, why=exc.message)
            return None
        return await make_thumb(content, self._settings, file.id)

    async def _conclude(self, job: Job, thumb: Thumb | None) -> bool:
        """Note what was found, where gateways and the API look; False if the file is gone."""

        def note(file: File) -> File:
            if thumb is None:
                return dataclasses.replace(file, is_looked_at=True)
            return dataclasses.replace(
                file,
                is_looked_at=True,
                has_thumb=True,
                width=thumb.width,
                height=thumb.height,
            )

        file = await self._parts.files.change_file(job.file, note)
        failpoint("media.before_news")
        if file is not None:
            await self._tell(file)
        await self._jobs.finish(job)
        return file is not None

    async def _tell(self, file: File) -> None:
        await self._parts.sendable.put(file, self._parts.clock.time(), is_news=True)


async def make_thumb(content: bytes, settings: Settings, name: str) -> Thumb | None:
    """Return what a child process makes of an image; None if it makes nothing of it.

    Guarantees:
        Bounded: in time by `thumb_timeout_s`, in memory by `thumb_memory_bytes_max`.
        The child has no environment, and dies with us.
        Cancellation: the child is ended.
    """
    limits = (settings.image_pixels_max, settings.thumb_px, settings.thumb_memory_bytes_max)
    cpu_s = max(1, round(settings.thumb_timeout_s))
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", "workers.thumbnail", *map(str, limits), str(cpu_s)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={},
        preexec_fn=die_with_parent(),
    )
    try:
        async with asyncio.timeout(settings.thumb_timeout_s):
            out, said = await child.communicate(content)
    except TimeoutError:
        log.info("media.too_slow", file=name, limit_s=settings.thumb_timeout_s)
        return None
    except (BrokenPipeError, ConnectionResetError) as exc:
        raise Unavailable(f"the child that looks at images went away: {exc}") from exc
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        why = said.decode(errors="replace")[:MESSAGE_BYTES_MAX]
        log.info("media.no_image", file=name, code=child.returncode, why=why)
        return None
    return _parse(out)


def _parse(out: bytes) -> Thumb | None:
    """Return what the child said. It has read a stranger's image: its word is checked, too."""
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


async def run_media(parts: WorkerParts, owner: str) -> None:
    """Look at images, `thumbs_in_flight_max` at once, until cancelled.

    Raises:
        Unavailable: a store went away; start again.
    """
    count = parts.settings.attachments.thumbs_in_flight_max
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                name = f"{owner}-{number}"
                group.create_task(MediaWorker(parts, name).run(), name=f"media-{number}")
    except* ChatError as failures:
        raise failures.exceptions[0] from failures
