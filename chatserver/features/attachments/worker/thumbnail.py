"""Thumbnail generation for one image, in an isolated process.

Usage: `python -m chatserver.features.attachments.worker.thumbnail PIXELS_MAX JPEG_PIXELS_MAX
THUMB_PX MEMORY_BYTES CPU_S`. Standard input is an image. Standard output is a line of JSON: `cpu_s`
used, and `width` and `height` of the image in its display orientation, or the `error`. The
thumbnail follows. The exit code is 0 if a thumbnail was created.

The image is untrusted, and decoders have vulnerabilities. The process therefore has no secrets in
its environment, cannot open files or sockets, has limits on memory and CPU time, and has the lowest
priority. An image is not decoded if its header declares too many pixels. The thumbnail contains
only pixels in the color space sRGB, without EXIF or other metadata.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import resource
import sys
from collections.abc import Iterator
from typing import Any

from chatserver.cpu_priority import lower_process_priority

IMAGE_PIXELS_MAX = 64_000_000  # images with more pixels get no thumbnail
JPEG_PIXELS_MAX = 220_000_000  # the same for JPEG, which is decoded at a reduced size
THUMB_PX = 480  # length of the longer side of a thumbnail

# AVIF before HEIF, whose plugin also opens, but cannot decode, an AVIF of the brand `mif1`.
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "AVIF", "HEIF", "BMP", "TIFF")
SIDE_MAX = 65_536
# Decoding a progressive JPEG takes one pass per scan. About ten scans are usual, but a file can
# have hundreds.
SCANS_MAX = 20
QUALITY = 80
ORIENTATION = 0x0112  # EXIF tag
PROFILE_BYTES_MAX = 4_194_304

_JPEG_FORMATS = ("JPEG", "MPO")  # MPO: a JPEG followed by further ones, as some phones write it
# EXIF orientation to the operation that displays the image upright.
_TRANSPOSE = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
_JPEG_START, _JPEG_END = b"\xff\xd8", b"\xff\xd9"
_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9
# In the data of a scan, 0xFF is followed by 0 or by a restart marker, except at the scan's end.
_SCAN_END = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")


def make_thumb(
    content: bytes, pixels_max: int, jpeg_pixels_max: int, thumb_px: int
) -> tuple[int, int, bytes]:
    """Return an image's width and height, and a thumbnail of it as WebP.

    If the data is damaged or ends too early, the thumbnail shows what was decoded before.

    Raises:
        ValueError: the image has too many pixels, or too many scans for its size.
        Exception: the decoder failed, for example because the image is corrupt.
    """
    from PIL import ImageFile

    try:
        return _make_thumb(content, pixels_max, jpeg_pixels_max, thumb_px)
    except (OSError, SyntaxError):
        ImageFile.LOAD_TRUNCATED_IMAGES = True
        if content.startswith(_JPEG_START):
            content = complete_jpeg(content)
        return _make_thumb(content, pixels_max, jpeg_pixels_max, thumb_px)
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = False


def _make_thumb(
    content: bytes, pixels_max: int, jpeg_pixels_max: int, thumb_px: int
) -> tuple[int, int, bytes]:
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # checked below
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        width, height = image.size
        is_jpeg = image.format in _JPEG_FORMATS
        if width * height > (jpeg_pixels_max if is_jpeg else pixels_max):
            raise ValueError("too many pixels")
        if max(width, height) > SIDE_MAX:
            raise ValueError("too many pixels")
        if is_jpeg:
            scans = count_scans(content)
            if scans > SCANS_MAX and width * height * scans > pixels_max * SCANS_MAX // 4:
                raise ValueError("too many scans")
            # Decode a JPEG at a reduced size if that is sufficient.
            share = min(1.0, 2 * thumb_px / max(width, height))
            image.draft("RGB", (max(1, int(width * share)), max(1, int(height * share))))
        image.load()  # the first frame of an animation, or the primary image of a HEIC
        orientation = _find_orientation(image)
        small = _shrink(image, thumb_px)
        small = _convert_to_srgb(small, image.info.get("icc_profile"))
        if orientation in _TRANSPOSE:
            small = small.transpose(Image.Transpose[_TRANSPOSE[orientation]])
        if orientation in (5, 6, 7, 8):
            width, height = height, width
        out = io.BytesIO()
        plain = Image.new(small.mode, small.size)
        plain.paste(small)
        plain.save(out, "WEBP", quality=QUALITY)
    return width, height, out.getvalue()


def count_scans(content: bytes) -> int:
    """Return the number of scans of a JPEG.

    Segments are skipped, because EXIF data may contain another JPEG; and so is what follows the
    image, such as the video of a motion photo.
    """
    return sum(marker == _START_OF_SCAN for marker, _ in _iter_segments(content))


def complete_jpeg(content: bytes) -> bytes:
    """Return a JPEG that ends too early with an end marker, and without an incomplete segment.

    Otherwise, the decoder waits for more data and may discard what it has decoded.
    """
    complete = 2
    for marker, end in _iter_segments(content):
        if marker == _END_OF_IMAGE:
            return content
        complete = end
    return content[:complete] + _JPEG_END


def _iter_segments(content: bytes) -> Iterator[tuple[int, int]]:
    """Yield the marker and the end of each complete segment of a JPEG, up to its end marker.

    The data of a scan belong to its segment. The data of the last scan may be incomplete.
    """
    at = 2
    while at + 4 <= len(content) and content[at] == 0xFF:
        marker = content[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        if marker != _END_OF_IMAGE:
            at += 2 + int.from_bytes(content[at + 2 : at + 4], "big")
        if at > len(content):
            return
        if marker == _START_OF_SCAN:
            end = _SCAN_END.search(content, at)
            at = len(content) if end is None else end.start()
        yield marker, at
        if marker == _END_OF_IMAGE:
            return


def _find_orientation(image: Any) -> int:
    try:
        orientation = image.getexif().get(ORIENTATION, 1)
    except Exception:  # noqa: BLE001  invalid EXIF data may raise anything; the pixels are valid
        return 1
    return orientation if isinstance(orientation, int) else 1


def _shrink(image: Any, thumb_px: int) -> Any:
    """Return the image in mode RGB, RGBA, L or CMYK, at most `thumb_px` wide and high."""
    from PIL import Image

    if image.mode.startswith("I") or image.mode == "F":
        image = image.convert("I").point(lambda value: value * (1 / 257)).convert("L")  # 16 bits
    elif image.mode in {"RGBA", "LA", "PA"} or "transparency" in image.info:
        image = image if image.mode == "RGBA" else image.convert("RGBA")
    elif image.mode == "1":
        image = image.convert("L")
    elif image.mode not in ("RGB", "L", "CMYK"):
        image = image.convert("RGB")
    width, height = image.size
    share = min(1.0, thumb_px / max(width, height))
    size = (max(1, round(width * share)), max(1, round(height * share)))
    # `resize` premultiplies alpha, so that transparent pixels do not bleed into others.
    return image.resize(size, Image.Resampling.LANCZOS, reducing_gap=2.0)


def _convert_to_srgb(image: Any, profile: bytes | None) -> Any:
    """Return the image in mode RGB or RGBA, with the colors that its profile describes."""
    from PIL import ImageCms

    mode = "RGBA" if image.mode == "RGBA" else "RGB"
    if profile and len(profile) <= PROFILE_BYTES_MAX:
        with contextlib.suppress(ImageCms.PyCMSError, OSError, ValueError):
            source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            target = ImageCms.createProfile("sRGB")
            return ImageCms.profileToProfile(image, source, target, outputMode=mode)
    return image.convert(mode)


def limit_resources(memory_bytes: int, cpu_s: int) -> None:
    """Limit the memory, CPU time, file size and core dumps of this process."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    # At the soft limit, the kernel sends SIGXCPU. At the hard limit it would send SIGKILL, as it
    # does when the machine is out of memory.
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def preload_plugins() -> None:
    """Make the image library load its plugins: create a thumbnail of an image in each format."""
    import pi_heif  # type: ignore[import-untyped]  # no type information
    from PIL import AvifImagePlugin, Image, ImageCms
    from PIL import MpoImagePlugin as MpoImagePlugin  # JPEG files may be MPO files

    pi_heif.register_heif_opener(thumbnails=False, decode_threads=1)
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for name in set(FORMATS) - {"HEIF"}:  # which the library only decodes
        sample = io.BytesIO()
        picture = Image.new("RGB", (2, 2))
        exif = picture.getexif()
        exif[ORIENTATION] = 6
        more = {} if name in ("BMP", "GIF") else {"exif": exif, "icc_profile": profile}
        picture.save(sample, name, **more)
        make_thumb(sample.getvalue(), 4, 4, 1)


def disable_file_access() -> None:
    """Forbid opening files or sockets. Call this after the libraries are loaded."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))


def main() -> int:
    """Run the command; see the module docstring."""
    pixels_max, jpeg_pixels_max, thumb_px, memory_bytes, cpu_s = map(int, sys.argv[1:6])
    # With SCHED_IDLE instead, a thumbnail would take minutes on a busy machine.
    lower_process_priority(19)
    limit_resources(memory_bytes, cpu_s)
    preload_plugins()
    content = sys.stdin.buffer.read()
    disable_file_access()
    report: dict[str, object]
    try:
        width, height, thumb = make_thumb(content, pixels_max, jpeg_pixels_max, thumb_px)
        report = {"width": width, "height": height}
    except Exception as exc:  # noqa: BLE001  a decoder may raise anything; report it to the caller
        report, thumb = {"error": f"{type(exc).__name__}: {exc}"[:300]}, b""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    report["cpu_s"] = usage.ru_utime + usage.ru_stime
    sys.stdout.buffer.write(json.dumps(report).encode() + b"\n")
    sys.stdout.buffer.write(thumb)
    sys.stdout.buffer.flush()
    return 0 if thumb else 1


if __name__ == "__main__":
    sys.exit(main())
