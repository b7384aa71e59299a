"""Media types of files, and the detection of an upload's actual type. No I/O.

The declared type is not trusted. It only determines the content type of downloads. Only images that
the server has encoded (thumbnails) are shown inline.
"""

from __future__ import annotations

import re

from chatserver.errors import BadRequest

TYPE_CHARS_MAX = 100
SNIFF_BYTES = 1024
OCTETS = "application/octet-stream"

_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")
# Image types that all browsers and models decode.
WEB_IMAGE_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
# Image types that get thumbnails.
RASTER_TYPES = WEB_IMAGE_TYPES | {"image/avif", "image/bmp", "image/heic", "image/tiff"}
# These types are served as declared. All other types are served as `OCTETS`.
_PLAIN_TYPES = RASTER_TYPES | {
    "application/pdf",
    "application/zip",
    "audio/mpeg",
    "audio/mp4",
    "audio/ogg",
    "audio/wav",
    "audio/webm",
    "text/plain",
    "video/mp4",
    "video/webm",
}
# Other names of the same formats.
_ALIASES = {
    "image/heif": "image/heic",
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "image/x-ms-bmp": "image/bmp",
}
_SIGNATURES: tuple[tuple[str, int, bytes], ...] = (
    ("image/png", 0, b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", 0, b"\xff\xd8\xff"),
    ("image/gif", 0, b"GIF87a"),
    ("image/gif", 0, b"GIF89a"),
    ("image/webp", 8, b"WEBP"),
    ("image/tiff", 0, b"II*\x00"),
    ("image/tiff", 0, b"MM\x00*"),
    ("image/bmp", 0, b"BM"),
    ("application/pdf", 0, b"%PDF-"),
    ("video/mp4", 4, b"ftyp"),
    ("application/zip", 0, b"PK\x03\x04"),
)
# The brands of images in ISO base media files. `mif1` does not name the codec; the
# compatible brands do.
_IMAGE_BRANDS = re.compile(rb"[\s\S]{4}ftyp(?:(avi[fs])|hei[cxms]|hev[cxms]|(mif1|msf1))")
_SIGNED_TYPES = RASTER_TYPES | {"application/pdf"}


def parse_type(text: str) -> str:
    """Normalize a media type: lowercase, without parameters, the usual name of an image format.

    Raises:
        BadRequest: `text` is not a media type.
    """
    text = text.partition(";")[0].strip().lower()
    if len(text) > TYPE_CHARS_MAX or _TYPE.fullmatch(text) is None:
        raise BadRequest(f"type: must be a media type of at most {TYPE_CHARS_MAX} characters")
    return _ALIASES.get(text, text)


def detect_type(head: bytes) -> str | None:
    """Return the type detected from the first bytes of a file, or None if it is unknown."""
    brand = _IMAGE_BRANDS.match(head)
    if brand is not None:
        brands = head[16 : int.from_bytes(head[:4])]
        is_avif = brand[1] or (brand[2] and b"avif" in brands)
        return "image/avif" if is_avif else "image/heic"
    for name, offset, magic in _SIGNATURES:
        if head[offset : offset + len(magic)] == magic and (
            name != "image/webp" or head[:4] == b"RIFF"
        ):
            return name
    return None


def find_actual_type(type_: str, head: bytes) -> str:
    """Return the type of a file that is declared as `type_`, from its first bytes.

    Images often have the file name, and thus the declared type, of another format.

    Raises:
        BadRequest: the file is declared as an image or a PDF, but is not one.
    """
    if type_ not in _SIGNED_TYPES:
        return type_
    detected = detect_type(head)
    if detected == type_ or (type_ in RASTER_TYPES and detected in RASTER_TYPES):
        return detected
    raise BadRequest(f"content: is not {type_}")


def get_served_type(type_: str) -> str:
    """Return the media type of a download. Browsers never execute content of this type."""
    return type_ if type_ in _PLAIN_TYPES else OCTETS
