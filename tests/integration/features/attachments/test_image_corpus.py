"""Images of every format, depth and fault: each gets a correct thumbnail, or none."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from PIL import Image

from chatserver.features.attachments.cold import THUMB_BYTES_MAX
from chatserver.features.attachments.container import AttachmentContainer
from chatserver.features.attachments.model import File
from chatserver.features.attachments.worker import thumbnail_process
from chatserver.features.attachments.worker.media import run_media
from chatserver.features.attachments.worker.thumbnail import (
    IMAGE_PIXELS_MAX,
    JPEG_PIXELS_MAX,
    THUMB_PX,
)
from tests.integration.features.attachments.support import FileStack, cold_settings, open_file_stack
from tests.integration.warm.support import create_tables, settings_for
from tests.integration.workers.support import running
from tests.support.image_corpus import SampleImage, list_images
from tests.support.servers.processes import eventually, open_redis

pytestmark = pytest.mark.constants(
    {"chatserver.features.attachments.worker.thumbnail_process.THUMB_TIMEOUT_S": 60}
)
FILES_PER_USER = 15
UPLOADED = {
    "48 megapixels, progressive",
    "AVIF declared as JPEG",
    "HEIC declared as JPEG",
    "HEIC of a phone",
    "HEIC that is only a header",
    "JPEG cut near its end",
    "MPO of a phone",
    "PNG bomb",
    "TIFF",
    "WebP declared as JPEG",
    "color profile",
    "motion photo",
}
# A worker's child processes one image. This one does what `thumbnail.main` does, for many.
IN_SANDBOX = f"""
import pickle, sys
from chatserver.features.attachments.worker import thumbnail

thumbnail.limit_resources({thumbnail_process.THUMB_MEMORY_BYTES_MAX}, 120)
thumbnail.preload_plugins()
contents = pickle.load(sys.stdin.buffer)
thumbnail.disable_file_access()
found = []
for content in contents:
    try:
        found.append(
            thumbnail.make_thumb(
                content,
                {IMAGE_PIXELS_MAX},
                {JPEG_PIXELS_MAX},
                {THUMB_PX},
            )
        )
    except Exception:
        found.append((0, 0, b""))
sys.stdout.buffer.write(pickle.dumps(found))
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(
    tmp_path_factory: pytest.TempPathFactory, dynamodb: str, s3: str
) -> AsyncIterator[FileStack]:
    """A store with the default limits."""
    warm, cold = settings_for(dynamodb), cold_settings(s3)
    create_tables(warm)
    with open_redis(tmp_path_factory.mktemp("images")) as url:
        async with open_file_stack(url, warm, cold) as made:
            yield made


async def upload_all(store: FileStack, images: list[SampleImage]) -> list[File]:
    files = []
    for number, image in enumerate(images):
        if number % FILES_PER_USER == 0:
            chat, alice, _, _ = await store.open_chat()
        files.append(await store.upload(alice, chat, image.content, "picture", image.type))
    return files


def find_fault(image: SampleImage, size: tuple[int, int], content: bytes) -> str:
    """Return what is wrong with a thumbnail (empty: there is none), or an empty string."""
    if not image.has_thumb:
        return "has a thumbnail" if content else ""
    if not content:
        return "has no thumbnail"
    if size != image.size:
        return f"has the size {size}"
    with Image.open(io.BytesIO(content)) as opened:
        thumb = opened.convert("RGB")
    shown = [
        thumb.getpixel((int(thumb.width * x), int(thumb.height * y)))
        for y in (0.25, 0.75)
        for x in (0.25, 0.75)
    ]
    assert image.colors is not None
    is_right = all(
        isinstance(color, tuple) and abs(channel - wanted) <= image.tolerance
        for color, expected in zip(shown, image.colors, strict=True)
        for channel, wanted in zip(color, expected, strict=True)  # type: ignore[arg-type]  # RGB
    )
    return "" if is_right else f"shows {shown}"


def test_image_of_any_format_gets_a_correct_thumbnail_or_none() -> None:
    """One process creates all thumbnails, with the limits of the real one and without files."""
    images = list_images()
    child = subprocess.run(
        [sys.executable, "-c", IN_SANDBOX],
        input=pickle.dumps([image.content for image in images]),
        capture_output=True,
        check=False,
        timeout=600,
    )
    assert child.returncode == 0, child.stderr.decode()
    faults = {}
    for image, (width, height, thumb) in zip(images, pickle.loads(child.stdout), strict=True):
        if fault := find_fault(image, (width, height), thumb):
            faults[image.name] = fault

    assert faults == {}


@pytest.mark.asyncio(loop_scope="module")
async def test_uploaded_image_gets_a_correct_thumbnail_or_none(store: FileStack) -> None:
    """This includes photographs of 48 megapixels, damaged ones, and wrong file names."""
    images = [image for image in list_images() if image.name in UPLOADED]
    files = await upload_all(store, images)
    assert len(files) == len(UPLOADED)

    async def is_done() -> bool:
        found = [await store.rows.find_file(file.id) for file in files]
        return all(file is not None and file.is_processed for file in found)

    async with running(run_media(store.worker, "test")):
        await eventually(is_done, deadline_s=240, what="all images are processed")
    faults = {}
    objects = store.worker.get(AttachmentContainer).objects
    for image, uploaded in zip(images, files, strict=True):
        file = await store.rows.find_file(uploaded.id)
        assert file is not None
        thumb = b""
        if file.has_thumb:
            thumb = await objects.read(file, THUMB_BYTES_MAX, is_thumb=True)
        if fault := find_fault(image, (file.width or 0, file.height or 0), thumb):
            faults[image.name] = fault

    assert faults == {}
