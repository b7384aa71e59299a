"""Thumbnail generation for one image, in an isolated process.

Usage: `python -m chatserver.features.attachments.worker.thumbnail PIXELS_MAX THUMB_PX MEMORY_BYTES
CPU_S`. Standard input is an image. Standard output is a line of JSON (`width` and `height` of the
image in its display orientation), followed by the thumbnail. The exit code is 0 if a thumbnail was
created.

The image is untrusted, and decoders have vulnerabilities. The process therefore has no secrets in
its environment, cannot open files or sockets, has limits on memory and CPU time, and has the lowest
priority. An image is not decoded if its header declares too many pixels. The thumbnail contains
only pixels, without EXIF or other metadata.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import sys
from pathlib import Path

FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
SIDE_MAX = 65_536
# Decoding a progressive JPEG takes one pass per scan. About ten scans are usual, but a file can
# have hundreds.
SCANS_MAX = 20
START_OF_SCAN = b"\xff\xda"
QUALITY = 80
ORIENTATION = 0x0112  # EXIF tag


def make_thumb(content: bytes, pixels_max: int, thumb_px: int) -> tuple[int, int, bytes]:
    """Return an image's width and height, and a thumbnail of it as WebP.

    Raises:
        ValueError: the image has too many pixels, or too many scans for its size.
        Exception: the decoder failed, for example because the image is corrupt.
    """
    from PIL import Image, ImageOps

    Image.MAX_IMAGE_PIXELS = pixels_max
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        width, height = image.size
        if width * height > pixels_max or max(width, height) > SIDE_MAX:
            raise ValueError("too many pixels")
        if image.format == "JPEG":
            scans = content.count(START_OF_SCAN)
            if scans > SCANS_MAX and width * height * scans > pixels_max * SCANS_MAX // 4:
                raise ValueError("too many scans")
        # Decode a JPEG at a reduced size if that is sufficient.
        image.draft("RGB", (thumb_px * 2, thumb_px * 2))
        image.seek(0)
        image.load()
        orientation = image.getexif().get(ORIENTATION, 1)
        small = image.convert("RGBA" if _has_alpha(image) else "RGB")
        small.thumbnail((thumb_px, thumb_px))
        small.info.clear()
        if orientation != 1:
            small.getexif()[ORIENTATION] = orientation
            small = ImageOps.exif_transpose(small)
        if orientation in (5, 6, 7, 8):
            width, height = height, width
        out = io.BytesIO()
        plain = Image.new(small.mode, small.size)
        plain.paste(small)
        plain.save(out, "WEBP", quality=QUALITY)
    return width, height, out.getvalue()


def _has_alpha(image: object) -> bool:
    mode = getattr(image, "mode", "")
    info = getattr(image, "info", {})
    return mode in {"RGBA", "LA", "PA"} or "transparency" in info


def lower_priority() -> None:
    """Set the lowest CPU priority: SCHED_IDLE on Linux, nice 19 elsewhere."""
    os.nice(19)
    with contextlib.suppress(AttributeError, OSError):  # Linux only
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    # With autogroup scheduling, Linux compares nice values only between processes of the same POSIX
    # session. The session as a whole must therefore get the lowest priority, too.
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text("19")


def limit_resources(memory_bytes: int, cpu_s: int) -> None:
    """Limit the memory, CPU time, file size and core dumps of this process."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def preload_plugins() -> None:
    """Make the image library load its plugins: create a thumbnail of an image in each format."""
    from PIL import Image

    for name in FORMATS:
        sample = io.BytesIO()
        picture = Image.new("RGB", (2, 2))
        exif = picture.getexif()
        exif[ORIENTATION] = 6
        picture.save(sample, name, **({} if name == "GIF" else {"exif": exif}))
        make_thumb(sample.getvalue(), 4, 1)


def disable_file_access() -> None:
    """Forbid opening files or sockets. Call this after the libraries are loaded."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))


def main() -> int:
    """Run the command; see the module docstring."""
    pixels_max, thumb_px, memory_bytes, cpu_s = map(int, sys.argv[1:5])
    lower_priority()
    limit_resources(memory_bytes, cpu_s)
    preload_plugins()
    content = sys.stdin.buffer.read()
    disable_file_access()
    try:
        width, height, thumb = make_thumb(content, pixels_max, thumb_px)
    except Exception as exc:  # noqa: BLE001  a decoder may raise anything; report it to the caller
        sys.stderr.write(f"{type(exc).__name__}: {exc}"[:300])
        return 1
    sys.stdout.buffer.write(json.dumps({"width": width, "height": height}).encode() + b"\n")
    sys.stdout.buffer.write(thumb)
    sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
