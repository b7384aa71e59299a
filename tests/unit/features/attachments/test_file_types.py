"""Media types are detected from the content, and a wrong declaration is refused."""

from __future__ import annotations

import pytest

from chatserver.errors import BadRequest
from chatserver.features.attachments.file_types import check_content, detect_type, parse_type


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b"\x89PNG\r\n\x1a\n....", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF....WEBPVP8 ", "image/webp"),
        (b"RIFX....WEBPVP8 ", None),
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
    check_content("text/plain", b"<html>")
    check_content("image/gif", b"GIF87a")
    for type_ in ("image/png", "image/gif", "application/pdf"):
        with pytest.raises(BadRequest):
            check_content(type_, b"<html>")


def test_types_are_in_lower_case_without_parameters() -> None:
    assert parse_type("Text/HTML; charset=utf-8") == "text/html"
    for text in ("text", "a/b\r\nc"):
        with pytest.raises(BadRequest):
            parse_type(text)
