"""Thumbnail creation in a child process, with limits on CPU time, wall time and memory.

Only the kernel's CPU time limit is a verdict on the image (`TooSlow`). If the child is still
running after `WAIT_FACTOR` times as long, or is killed by something else, the machine is busy or
short of memory, and the same image may succeed later (`Interrupted`).
"""

from __future__ import annotations

import asyncio
import math
import signal
import sys
from typing import Annotated, NamedTuple

import msgspec
import structlog
from msgspec import Meta

from chatserver.errors import Unavailable
from chatserver.features.attachments.cold import THUMB_BYTES_MAX
from chatserver.features.attachments.worker.thumbnail import (
    IMAGE_PIXELS_MAX,
    JPEG_PIXELS_MAX,
    THUMB_PX,
)
from chatserver.process_runtime import make_parent_death_hook

log = structlog.get_logger()

THUMB_TIMEOUT_S = 10.0  # limit of the CPU time for a thumbnail
THUMB_MEMORY_BYTES_MAX = 1_073_741_824  # an image that needs more memory gets no thumbnail
# Wall time limit divided by CPU time limit. The child has the lowest priority, so it can wait long
# for a CPU.
WAIT_FACTOR = 15
MESSAGE_BYTES_MAX = 300


class Thumb(NamedTuple):
    """The dimensions of an image (not of the thumbnail), and the content of its thumbnail."""

    width: int
    height: int
    content: bytes


class ThumbResult(NamedTuple):
    """The thumbnail, or None if the image cannot be decoded; and the CPU time that it took."""

    thumb: Thumb | None
    cpu_s: float


class _Report(msgspec.Struct, frozen=True):
    """The child's report. It is untrusted, because the child decodes untrusted images.

    Without a valid report, there is no thumbnail, and the CPU time counts as the maximum.
    """

    width: Annotated[int, Meta(gt=0, lt=2**31)] = 0
    height: Annotated[int, Meta(gt=0, lt=2**31)] = 0
    error: str = ""
    cpu_s: Annotated[float, Meta(ge=0)] = math.inf


class TooSlow(Exception):
    """An image exceeded its CPU time limit."""


class Interrupted(Unavailable):
    """The child process did not end in time or was killed, for a reason other than the image."""


async def make_thumb(content: bytes, name: str, cpu_s: int | None = None) -> ThumbResult:
    """Create a thumbnail in a child process.

    Guarantees:
        Bounded: CPU time to `cpu_s` (default: `THUMB_TIMEOUT_S`), wall time to `WAIT_FACTOR` times
            as much, memory to `THUMB_MEMORY_BYTES_MAX`.
        Isolated: the child has the lowest priority and no environment, and exits with this process.
        Cancellation: the child is killed.

    Raises:
        TooSlow: the image needs more CPU time.
        Interrupted: the machine is too busy, or the child was killed; try again later.
    """
    limits = (IMAGE_PIXELS_MAX, JPEG_PIXELS_MAX, THUMB_PX, THUMB_MEMORY_BYTES_MAX)
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
        start_new_session=True,  # see `lower_process_priority`
        preexec_fn=make_parent_death_hook(),
    )
    try:
        async with asyncio.timeout(WAIT_FACTOR * cpu_s):
            out, error = await child.communicate(content)
    except TimeoutError:
        raise Interrupted("the thumbnail process got too little CPU time") from None
    except (BrokenPipeError, ConnectionResetError) as exc:
        raise Interrupted(f"the thumbnail process exited: {exc}") from exc
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode == -signal.SIGXCPU:
        raise TooSlow
    if child.returncode == -signal.SIGKILL:
        raise Interrupted("the thumbnail process was killed")
    head, _, image = out.partition(b"\n")
    report = _parse_report(head)
    if child.returncode == 0:
        return ThumbResult(_parse_thumb(report, image), min(report.cpu_s, cpu_s))
    reason = report.error or error.decode(errors="replace")
    log.info(
        "media.image_rejected",
        file=name,
        code=child.returncode,
        reason=reason[:MESSAGE_BYTES_MAX],
    )
    return ThumbResult(None, min(report.cpu_s, cpu_s))


def _parse_report(head: bytes) -> _Report:
    try:
        return msgspec.json.decode(head, type=_Report)
    except msgspec.MsgspecError:
        return _Report()


def _parse_thumb(report: _Report, thumb: bytes) -> Thumb | None:
    is_webp = thumb[:4] == b"RIFF" and thumb[8:12] == b"WEBP" and len(thumb) <= THUMB_BYTES_MAX
    if not (is_webp and report.width and report.height):
        return None
    return Thumb(report.width, report.height, thumb)
