"""Media types are detected from the content; a wrong declaration is corrected or refused."""

from __future__ import annotations

import pytest

from chatserver.errors import BadRequest
from chatserver.features.attachments.file_types import (
    detect_type,
    find_actual_type,
    parse_type,
)


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b"\x89PNG\r\n\x1a\n....", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF....WEBPVP8 ", "image/webp"),
        (b"RIFX....WEBPVP8 ", None),
        (b"\0\0\0\x18ftypheic", "image/heic"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic", "image/heic"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1avif", "image/avif"),
        (b"\0\0\0\x1cftypavif", "image/avif"),
        (b"\0\0\0\x18ftypisom", "video/mp4"),
        (b"BM\x1a\0", "image/bmp"),
        (b"II*\0", "image/tiff"),
        (b"MM\0*", "image/tiff"),
        (b"%PDF-1.7", "application/pdf"),
        (b"<html>", None),
        (b"", None),
    ],
)
def test_type_is_detected_from_the_first_bytes(head: bytes, found: str | None) -> None:
    """The declared name does not matter."""
    assert detect_type(head) == found


def test_content_of_another_type_is_refused() -> None:
    """Only types that have a signature are checked."""
    assert find_actual_type("text/plain", b"<html>") == "text/plain"
    assert find_actual_type("image/gif", b"GIF87a") == "image/gif"
    for type_ in ("image/png", "image/gif", "application/pdf"):
        with pytest.raises(BadRequest):
            find_actual_type(type_, b"<html>")


@pytest.mark.parametrize(
    ("head", "actual"),
    [
        (b"RIFF....WEBPVP8 ", "image/webp"),
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\0\0\0\x18ftypheic", "image/heic"),
    ],
)
def test_image_with_the_file_name_of_another_format_gets_its_actual_type(
    head: bytes, actual: str
) -> None:
    """Browsers derive the declared type from the file name."""
    assert find_actual_type("image/jpeg", head) == actual


def test_types_are_in_lower_case_without_parameters() -> None:
    assert parse_type("Text/HTML; charset=utf-8") == "text/html"
    assert parse_type("image/heif") == "image/heic"
    for text in ("text", "a/b\r\nc"):
        with pytest.raises(BadRequest):
            parse_type(text)
