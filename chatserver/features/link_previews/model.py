"""Link preview values and limits. No I/O."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

URL_CHARS_MAX: Final = 2048
TITLE_CHARS_MAX: Final = 200
DESCRIPTION_CHARS_MAX: Final = 500
SITE_CHARS_MAX: Final = 80

WAIT_S: Final = 5.0  # maximum wait if `FETCHES_MAX` fetches are running
FETCH_S: Final = 5.0  # deadline for a page or a picture, including redirects
REDIRECTS_MAX: Final = 4
PAGE_BYTES_MAX: Final = 524_288  # the rest of a longer page is not read
PICTURE_BYTES_MAX: Final = 2_097_152
FETCHES_MAX: Final = 16  # maximum concurrent fetches per process
FETCHES_OF_USER_MAX: Final = 4  # the new accounts of a network count as one user
FETCHES_WAITING_MAX: Final = 16  # maximum waiting fetches per user
CACHE_S: Final = 86_400
FAILURE_CACHE_S: Final = 600
CACHE_BYTES: Final = 4096  # bytes per cached preview, charged to a user's Redis memory budget

# Comma-separated networks that previews may access in addition to public addresses. Users choose
# the URLs, so `outbound.allow_private` does not apply. Tests replace this constant.
PRIVATE_NETWORKS = ""

_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


class PageSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """The preview that a page declares in its HTML tags. `picture` is an absolute URL, or empty."""

    title: str = ""
    description: str = ""
    site: str = ""
    picture: str = ""

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to show."""
        return not (self.title or self.picture)


class PreviewPicture(msgspec.Struct, frozen=True):
    """A picture in a format that browsers can show and that cannot contain scripts."""

    type: str
    content: bytes


def detect_picture_type(content: bytes) -> str | None:
    """Detect a picture's media type from its first bytes; return None for any other content.

    The declared type is ignored: a browser must never interpret the content as a page.
    """
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    for signature, name in _SIGNATURES:
        if content.startswith(signature):
            return name
    return None


def compute_url_digest(url: str) -> str:
    """Return the digest that identifies a URL in the cache without revealing it."""
    return hashlib.blake2b(url.encode(), digest_size=16).hexdigest()
