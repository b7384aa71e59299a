"""Page heads: Open Graph, plain HTML, charsets, and hostile pages."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.features.link_previews.model import (
    DESCRIPTION_CHARS_MAX,
    PAGE_BYTES_MAX,
    SITE_CHARS_MAX,
    TITLE_CHARS_MAX,
    URL_CHARS_MAX,
    PageSummary,
    detect_picture_type,
)
from chatserver.features.link_previews.page_head import parse_page

URL = "https://example.org/a/page"
CPU_S_MAX = 20.0


def parse(text: str, content_type: str = "text/html; charset=utf-8") -> PageSummary:
    return parse_page(text.encode(), content_type, URL)


def test_open_graph_takes_precedence_over_plain_html() -> None:
    """Entities are decoded, all quotes are supported, and an image URL is made absolute."""
    found = parse(
        "<!doctype html><html><head><title>Plain</title>"
        '<meta name="description" content="Plain description">'
        "<META content='Fish &amp; chips > rest' property='og:title' />"
        '<meta property="og:description" content=" two\n  lines ">'
        '<meta property="og:site_name" content="Example">'
        '<meta property="og:image" content="../pictures/1.png?a=1&amp;b=2"></head>'
    )

    assert found == PageSummary(
        "Fish & chips > rest",
        "two lines",
        "Example",
        "https://example.org/pictures/1.png?a=1&b=2",
    )


def test_page_without_open_graph_has_its_title_and_description() -> None:
    """Of several titles, the first one is used."""
    found = parse(
        "<title lang=en>One &mdash; two</title><meta name=description content='Three'>"
        "<svg><title>Icon</title></svg>"
    )

    assert (found.title, found.description, found.picture) == ("One — two", "Three", "")


@pytest.mark.parametrize(
    ("content_type", "head", "codec"),
    [
        ("text/html; charset=windows-1251", "", "windows-1251"),
        ("text/html", '<meta charset="Shift_JIS">', "shift_jis"),
        ("text/html", "<meta http-equiv=x content='text/html; charset=gb2312'>", "gb2312"),
        ("text/html", "", "utf-8"),
    ],
)
def test_charset_is_read_from_the_header_or_the_page(
    content_type: str, head: str, codec: str
) -> None:
    """Old pages declare it in their head."""
    title = "Пример" if codec != "gb2312" else "例子"

    found = parse_page(f"{head}<title>{title}</title>".encode(codec), content_type, URL)

    assert found.title == title


@pytest.mark.parametrize("charset", ["punycode", "idna", "zlib", "unicode_escape", "none", "utf-7"])
def test_charset_that_is_not_a_web_encoding_is_ignored(charset: str) -> None:
    """Python has codecs that are slow, or that decode bytes to something else."""
    found = parse("<title>plain</title>", f"text/html; charset={charset}")

    assert found.title == "plain"


@pytest.mark.parametrize(
    "reference",
    [
        "javascript:alert(1)",
        "data:image/png;base64,AAAA",
        "file:///etc/passwd",
        "ftp://example.org/1.png",
        "http://[::1",
        "https://example.org/" + "x" * URL_CHARS_MAX,
    ],
)
def test_picture_without_a_valid_http_url_is_omitted(reference: str) -> None:
    """The server fetches only HTTP URLs of limited length."""
    assert parse(f'<meta property="og:image" content="{reference}">').picture == ""


def test_texts_are_cut_and_have_no_control_or_direction_characters() -> None:
    """A title cannot reorder the text around it."""
    found = parse(
        f'<title>{"t" * 900}</title><meta property="og:site_name" content="{"s" * 900}">'
        f'<meta name="description" content="a\u202eb\u200b\x00c {"d" * 900}">'
    )

    assert len(found.title) == TITLE_CHARS_MAX
    assert len(found.site) == SITE_CHARS_MAX
    assert len(found.description) == DESCRIPTION_CHARS_MAX
    assert found.description.startswith("a b c ddd")


@pytest.mark.parametrize(
    "piece",
    [
        "<meta ",
        '<meta "',
        "<meta '\"",
        '<meta a="',
        "<meta name=x content='",
        "<meta x><",
        "<title>",
        "<title <",
        "<!--",
        "<meta property=og:title content=x>",
        "&#x",
        "\x00",
    ],
)
def test_hostile_page_is_parsed_in_linear_time(piece: str) -> None:
    """A quadratic parser would take minutes for a page of the maximum size."""
    started = time.process_time()

    parse(piece * (PAGE_BYTES_MAX // len(piece)))

    assert time.process_time() - started < CPU_S_MAX


@given(st.binary(max_size=2_000), st.text(max_size=40))
def test_any_bytes_give_a_bounded_summary(content: bytes, content_type: str) -> None:
    """No input raises an error."""
    found = parse_page(b"<title>" + content, content_type, URL)

    assert len(found.title) <= TITLE_CHARS_MAX
    assert "\n" not in found.title


@pytest.mark.parametrize(
    ("content", "type_"),
    [
        (b"\x89PNG\r\n\x1a\n...", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'>", None),
        (b"<html>", None),
        (b"RIFF\x00\x00\x00\x00WAVE", None),
        (b"", None),
    ],
)
def test_picture_is_recognized_by_its_first_bytes(content: bytes, type_: str | None) -> None:
    """Formats that may contain scripts are not recognized."""
    assert detect_picture_type(content) == type_
