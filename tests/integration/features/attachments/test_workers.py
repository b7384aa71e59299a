"""Thumbnails, and the removal of unused files, on real Redis, DynamoDB and S3."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import io
import os
import signal
import sys
from collections.abc import Callable

import psutil
import pytest
from PIL import Image

from chatserver.errors import NotFound
from chatserver.features.attachments.container import AttachmentContainer
from chatserver.features.attachments.keys import AttachmentKeys
from chatserver.features.attachments.model import File
from chatserver.features.attachments.worker.media import (
    FAST_CPU_S,
    USER_CPU_S,
    MediaWorker,
    SlowMediaWorker,
    UsageByUser,
    run_media,
)
from chatserver.features.attachments.worker.sweep import Sweeper
from chatserver.features.attachments.worker.thumbnail_process import (
    Interrupted,
    TooSlow,
    make_thumb,
)
from chatserver.protocol import frames
from tests.integration.features.attachments.support import (
    EXIF_ROTATED,
    LOW_LIMITS,
    FileStack,
    cold_variables,
    picture,
)
from tests.integration.workers.support import running, variables_of
from tests.support.constants import constants
from tests.support.deadlines import wait_for_exit, wait_for_pid
from tests.support.servers.processes import eventually

KEYS = AttachmentKeys(1)

pytest_plugins = ["tests.integration.features.attachments.fixtures"]
MEDIA = "chatserver.features.attachments.worker.media."
PROCESS = "chatserver.features.attachments.worker.thumbnail_process."
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.constants(LOW_LIMITS)]


async def make_due(store: FileStack, *files: str) -> None:
    """Move the due time of files into the past."""
    now = int(store.worker.clock.time())
    for file in files:
        await store.rows.update_file(file, lambda f: dataclasses.replace(f, due=now - 60))


def start(store: FileStack, worker: str, failpoint: str) -> Callable[[], int]:
    """Start a worker that kills itself at a failpoint; return a function that awaits its exit."""
    env = variables_of(store.worker) | cold_variables(store.settings.cold)
    env |= {
        "CHAT_FAILPOINT": failpoint,
        "CHAT_AUTH_SECRET": "s" * 32,
        "chatserver.features.attachments.worker.sweep.SETTLE_S": "0",
    }
    argv = [sys.executable, "-m", "tests.support.cli", "worker", worker]
    # Do not use asyncio here: its child watcher belongs to one event loop.
    pid = os.posix_spawn(sys.executable, argv, {**os.environ, **env})

    return functools.partial(wait_for_pid, pid)


async def has_attempts(store: FileStack, file: str, count: int) -> bool:
    """Return whether the slow queue has tried an image at least `count` times."""
    value = await store.worker.hot.call("HGET", KEYS.image_attempts(), file)
    return value is not None and int(value.split()[0]) >= count


async def test_image_gets_dimensions_and_a_thumbnail_without_exif(
    store: FileStack,
) -> None:
    """The EXIF orientation is applied, and only the original file has the location."""
    chat, alice, bob, _ = await store.open_chat()
    content = picture((600, 300), "JPEG", EXIF_ROTATED)
    file = await store.upload(alice, chat, content, "me.jpg", "image/jpeg")

    processed = await store.process_media(file.id)
    ack = await store.send(alice, chat, file.id)

    assert (processed.width, processed.height, processed.has_thumb) == (300, 600, True)
    entry = (await store.read(bob, chat, ack.seq)).attachments[0]
    assert (entry.width, entry.height, entry.thumb) == (300, 600, True)
    headers, thumb = await store.download(bob, file.id, seq=ack.seq, is_thumb=True)
    assert (headers["content-type"], headers["content-disposition"]) == ("image/webp", "inline")
    with Image.open(io.BytesIO(thumb)) as image:
        assert (image.format, image.size, dict(image.getexif())) == ("WEBP", (240, 480), {})
    assert b"at home" in content and b"at home" not in thumb


async def test_image_sent_before_processing_gets_its_thumbnail_later(store: FileStack) -> None:
    """The message keeps its first metadata; links and a waiting `finish` return the new data."""
    chat, alice, bob, _ = await store.open_chat()
    file = await store.upload(alice, chat, picture(), "me.png", "image/png")
    ack = await store.send(alice, chat, file.id)
    await store.persist()

    async def link() -> File:
        found = await store.api.get(AttachmentContainer).download_links.get(
            bob, file.id, seq=ack.seq, is_thumb=False
        )
        return found.file

    early = await link()
    waiting = asyncio.create_task(store.uploads.finish(alice, file.id, 30))
    processed = await store.process_media(file.id)

    assert (early.is_processed, early.has_thumb) == (False, False)
    assert await waiting == processed == await link()
    assert (processed.has_thumb, processed.width is None) == (True, False)
    again = await store.send(alice, chat, file.id)
    sent = [await store.read(bob, chat, each.seq) for each in (ack, again)]
    assert [message.attachments[0].thumb for message in sent] == [False, True]


async def test_unreadable_image_is_a_plain_file(store: FileStack) -> None:
    """The file can be sent without a thumbnail and counts as processed."""
    chat, alice, bob, _ = await store.open_chat()
    file = await store.upload(alice, chat, b"\x89PNG\r\n\x1a\nbroken", "a.png", "image/png")

    processed = await store.process_media(file.id)
    ack = await store.send(alice, chat, file.id)

    assert (processed.has_thumb, processed.width) == (False, None)
    assert not (await store.read(bob, chat, ack.seq)).attachments[0].thumb
    with pytest.raises(NotFound):
        await store.download(bob, file.id, seq=ack.seq, is_thumb=True)


async def test_decompression_bomb_is_refused(store: FileStack) -> None:
    """The pixel count in the header refuses it or, without that check, the memory limit."""
    out = io.BytesIO()
    Image.new("1", (12_000, 12_000)).save(out, "PNG")
    bomb = out.getvalue()

    assert len(bomb) < 20_000
    assert (await make_thumb(bomb, "bomb")).thumb is None
    with constants(
        {PROCESS + "IMAGE_PIXELS_MAX": 10**9, PROCESS + "THUMB_MEMORY_BYTES_MAX": 134_217_728}
    ):
        assert (await make_thumb(bomb, "bomb")).thumb is None
    assert (await make_thumb(picture(), "small")).thumb is not None


async def test_jpeg_beyond_the_pixel_limit_is_refused() -> None:
    """The limit is higher than for other formats, because a JPEG is decoded at a reduced size."""
    large, small = picture((64, 32), "JPEG"), picture((32, 32), "JPEG")
    with constants({PROCESS + "IMAGE_PIXELS_MAX": 0, PROCESS + "JPEG_PIXELS_MAX": 1024}):
        assert (await make_thumb(large, "large")).thumb is None
        assert (await make_thumb(small, "small")).thumb is not None


async def test_progressive_jpeg_with_many_scans_is_refused(store: FileStack) -> None:
    """Each scan is a pass over all pixels, so a file with hundreds of scans is not decoded."""
    out = io.BytesIO()
    Image.new("L", (6000, 6000), 128).save(out, "JPEG", progressive=True)
    head, *scans = out.getvalue().split(b"\xff\xda")
    last = scans[-1].removesuffix(b"\xff\xd9")
    bomb = b"\xff\xda".join([head, *scans[:-1], *[last] * 300]) + b"\xff\xd9"

    assert len(bomb) < 2_000_000
    assert (await make_thumb(bomb, "bomb", cpu_s=FAST_CPU_S)).thumb is None
    assert (await make_thumb(out.getvalue(), "usual")).thumb is not None


async def test_image_beyond_the_cpu_limit_raises_too_slow(store: FileStack) -> None:
    """The limit ends the child process, and the error has the reason."""
    out = io.BytesIO()
    Image.new("L", (24_000, 24_000), 128).save(out, "PNG", compress_level=1)
    without_size_limits = {
        PROCESS + "IMAGE_PIXELS_MAX": 10**9,
        PROCESS + "THUMB_MEMORY_BYTES_MAX": 4 << 30,
        PROCESS + "WAIT_FACTOR": 300,
    }

    with constants(without_size_limits), pytest.raises(TooSlow):
        await make_thumb(out.getvalue(), "large", cpu_s=1)


async def test_killed_thumbnail_process_is_no_verdict_on_the_image() -> None:
    """The kernel may kill it because the machine is out of memory."""

    def find_child() -> psutil.Process | None:
        children = psutil.Process().children()
        return next((each for each in children if "-I" in each.cmdline()), None)

    async def kill_child() -> bool:
        child = find_child()
        if child is not None:
            child.kill()
        return child is not None

    making = asyncio.create_task(make_thumb(picture(), "small"))
    await eventually(kill_child, what="the child is killed")

    with pytest.raises(Interrupted):
        await making


async def test_image_interrupted_by_a_busy_machine_gets_its_thumbnail_later(
    store: FileStack,
) -> None:
    """Too little CPU time, however often, is no verdict on the image."""
    chat, alice, _, _ = await store.open_chat()
    file = await store.upload(alice, chat, picture(), "me.png", "image/png")
    busy = {PROCESS + "WAIT_FACTOR": 0.0001, MEDIA + "BACKOFF_S": 0.01, MEDIA + "LEASE_MARGIN_S": 1}
    with constants(busy):
        async with running(run_media(store.worker, "busy")):
            await eventually(
                lambda: has_attempts(store, file.id, 3),
                deadline_s=60,
                what="the image is tried again",
            )
    before = await store.rows.find_file(file.id)

    assert before is not None and not before.is_processed
    assert (await store.process_media(file.id)).has_thumb


async def test_image_is_tried_again_when_s3_is_unavailable(store: FileStack) -> None:
    """An outage, however long, is no verdict on the image."""
    chat, alice, _, _ = await store.open_chat()
    file = await store.upload(alice, chat, picture(), "me.png", "image/png")
    await store.worker.get(AttachmentContainer).slow_images.add(file.id, alice)
    worker = SlowMediaWorker(container=store.worker, usage=UsageByUser(store.worker.clock))

    with constants({MEDIA + "BACKOFF_S": 0.01}):
        store.worker.store.fence.set("test", "S3 is unavailable")
        try:
            async with running(worker.run()):
                await eventually(
                    lambda: has_attempts(store, file.id, 3), what="the image is tried again"
                )
        finally:
            store.worker.store.fence.set("test", "")
        before = await store.rows.find_file(file.id)

    assert before is not None and not before.is_processed
    assert (await store.process_media(file.id)).has_thumb


async def test_thumbnail_process_has_the_lowest_priority() -> None:
    limits = ("1000", "1000", "100", str(1 << 30), "10")
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", "chatserver.features.attachments.worker.thumbnail", *limits),
        stdin=asyncio.subprocess.PIPE,
    )
    try:
        await eventually(lambda: psutil.Process(child.pid).nice() == 19)
    finally:
        child.kill()
        await wait_for_exit(child)


async def test_images_of_a_heavy_user_are_left_to_the_slow_worker(
    store: FileStack,
) -> None:
    """The fast worker skips images of a user who has used much CPU time."""
    chat, alice, bob, _ = await store.open_chat()
    usage = UsageByUser(store.worker.clock)
    usage.add(alice, USER_CPU_S)
    of_alice = await store.upload(alice, chat, picture(), "a.png", "image/png")
    of_bob = await store.upload(bob, chat, picture(), "b.png", "image/png")

    async with running(MediaWorker(container=store.worker, name="fast", usage=usage).run()):
        await store.wait_until_processed(of_bob.id)
        before = await store.rows.find_file(of_alice.id)
    async with running(SlowMediaWorker(container=store.worker, usage=usage).run()):
        after = await store.wait_until_processed(of_alice.id)

    assert before is not None and not before.is_processed
    assert after.has_thumb


@pytest.mark.parametrize("failpoint", ["media.before_conclusion", "media.before_news"])
async def test_job_of_a_killed_worker_is_completed_by_another(
    store: FileStack, failpoint: str
) -> None:
    """The worker is killed before the result is stored, or before it is reported."""
    # There must be no images of other tests: the worker must reach the failpoint with this one.
    await store.worker.hot.call("DEL", KEYS.jobs())
    chat, alice, _, _ = await store.open_chat()
    file = await store.upload(alice, chat, picture(), "a.png", "image/png")
    wait = start(store, "media", f"{failpoint}:kill")
    assert await asyncio.to_thread(wait) == -signal.SIGKILL
    found = await store.rows.find_file(file.id)
    (sendable,) = await store.worker.get(AttachmentContainer).sendable.find([file.id])
    assert found is not None and found.is_processed == (failpoint == "media.before_news")
    assert sendable is not None and not sendable.is_processed
    # Expire the claim of the killed worker.
    key = KEYS.jobs()
    for entry, *_ in await store.worker.hot.call("XPENDING", key, "media", "-", "+", 10):
        await store.worker.hot.call(
            "XCLAIM", key, "media", "dead", 0, entry, "IDLE", 3_600_000, "JUSTID"
        )

    assert (await store.process_media(file.id)).has_thumb


async def test_sweep_removes_unsent_files_only(store: FileStack) -> None:
    """Objects and rows of files that were not sent in time are deleted; a sent file remains."""
    chat, alice, bob, _ = await store.open_chat()
    sent = await store.upload(alice, chat, b"sent")
    unsent = await store.upload(alice, chat, b"unsent")
    started = await store.begin(alice, chat, b"begun")
    assert await store.post(started, b"begun") == 204
    ack = await store.send(alice, chat, sent.id)
    await store.persist()
    await make_due(store, unsent.id, started.file.id)

    await Sweeper(store.worker, "test").sweep()

    for gone in (unsent.id, started.file.id):
        assert await store.list_keys(gone) == []
        assert await store.rows.find_file(gone) is None
    with pytest.raises(NotFound):
        await store.send(alice, chat, unsent.id)
    assert (await store.download(bob, sent.id, seq=ack.seq))[1] == b"sent"
    for _ in range(3):  # removed files do not count any more
        await store.begin(alice, chat, b"more")


async def test_sweep_keeps_files_of_unpersisted_messages(store: FileStack) -> None:
    """A file that is due is kept until all messages sent before are persisted."""
    chat, alice, bob, _ = await store.open_chat()
    file = await store.upload(alice, chat, b"late")
    ack = await store.send(alice, chat, file.id)
    await make_due(store, file.id)
    # The file is due, but its message is still in the backlog.
    now = int(store.worker.clock.time())
    await store.rows.update_file(file.id, lambda f: dataclasses.replace(f, due=now + 1))
    await asyncio.sleep(0)

    await Sweeper(store.worker, "test").sweep()
    assert await store.rows.find_file(file.id) is not None
    await store.persist()
    await Sweeper(store.worker, "test").sweep()

    assert (await store.download(bob, file.id, seq=ack.seq))[1] == b"late"


async def test_file_is_removed_with_its_last_message(store: FileStack) -> None:
    """The file is kept while another message has it."""
    chat, alice, bob, _ = await store.open_chat()
    file = await store.upload(alice, chat, b"twice")
    first = await store.send(alice, chat, file.id)
    second = await store.send(alice, chat, file.id)
    await store.persist()
    sweeper = Sweeper(store.worker, "test")

    await store.api.message_change_service.change(alice, frames.Delete(0, chat, first.seq, "d1"))
    await store.persist()
    await sweeper.sweep()
    assert (await store.download(bob, file.id, seq=second.seq))[1] == b"twice"
    await store.api.message_change_service.change(alice, frames.Delete(0, chat, second.seq, "d2"))
    await store.persist()

    async def is_gone() -> bool:
        await sweeper.sweep()  # due times are whole seconds
        return await store.rows.find_file(file.id) is None

    await eventually(is_gone, deadline_s=60, what="the file is removed")
    assert await store.list_keys(file.id) == []


async def test_file_of_an_expiring_message_is_due_with_it(store: FileStack) -> None:
    chat, alice, _, _ = await store.open_chat()
    file = await store.upload(alice, chat, b"short")
    await store.send(alice, chat, file.id, expires_s=600)
    await store.persist()

    found = await store.rows.find_file(file.id)

    assert found is not None and found.due is not None
    assert 500 < found.due - store.worker.clock.time() < 700


async def test_killed_sweep_is_completed_by_the_next(store: FileStack) -> None:
    """The sweep is killed after it deleted the objects and before it deletes the rows."""
    chat, alice, _, _ = await store.open_chat()
    files = [(await store.upload(alice, chat, b"x")).id, (await store.upload(alice, chat, b"y")).id]
    await store.persist()  # files due after the oldest message in the backlog are not swept
    await make_due(store, *files)
    wait = start(store, "sweep", "sweep.before_rows:kill")
    assert await asyncio.to_thread(wait) == -signal.SIGKILL

    await Sweeper(store.worker, "test").sweep()

    for file in files:
        assert await store.list_keys(file) == []
        assert await store.rows.find_file(file) is None
    for _ in range(3):
        await store.begin(alice, chat, b"more")
