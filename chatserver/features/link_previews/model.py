"""Values and limits of link previews. No I/O."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

URL_CHARS_MAX: Final = 2048
TITLE_CHARS_MAX: Final = 200
DESCRIPTION_CHARS_MAX: Final = 500
SITE_CHARS_MAX: Final = 80

WAIT_S: Final = 5.0  # longest wait until fewer than `FETCHES_MAX` fetches run
FETCH_S: Final = 5.0  # deadline for a page with its redirects, or for a picture
REDIRECTS_MAX: Final = 4
PAGE_BYTES_MAX: Final = 524_288  # the rest of a longer page is not read
PICTURE_BYTES_MAX: Final = 2_097_152
FETCHES_MAX: Final = 16  # concurrent, per process
CACHE_S: Final = 86_400
FAILURE_CACHE_S: Final = 600
CACHE_BYTES: Final = 4096  # upper bound of a typical preview in Redis

# Networks that previews may reach besides public addresses, comma-separated. Users choose the URLs,
# so `outbound.allow_private` does not apply. Tests replace this constant.
PRIVATE_NETWORKS = ""

_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


class PageSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page's preview from its own HTML tags. `picture` is an absolute URL, or empty."""

    title: str = ""
    description: str = ""
    site: str = ""
    picture: str = ""

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to show."""
        return not (self.title or self.picture)


class Picture(msgspec.Struct, frozen=True):
    """A picture in a format that browsers show and that cannot contain scripts."""

    type: str
    content: bytes


def detect_picture_type(content: bytes) -> str | None:
    """Return the media type of a picture from its first bytes; None for every other format.

    The declared type is not used: a browser must never interpret the content as a page.
    """
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    for signature, name in _SIGNATURES:
        if content.startswith(signature):
            return name
    return None


def compute_url_digest(url: str) -> str:
    """Return the cache key of a URL. Keys do not reveal which links users exchange."""
    return hashlib.blake2b(url.encode(), digest_size=16).hexdigest()
