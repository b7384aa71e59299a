"""Extracts a page's title, description, site name and picture (Open Graph, or plain HTML).

The page is untrusted. Only its first `TAGS_MAX` `title` and `meta` tags are parsed, one at a time.
Bounded patterns find them, because `html.parser` needs quadratic time for some long inputs.
"""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from typing import Final

from yarl import URL

from chatserver.domain.text.graphemes import truncate
from chatserver.features.link_previews.model import (
    DESCRIPTION_CHARS_MAX,
    SITE_CHARS_MAX,
    TITLE_CHARS_MAX,
    URL_CHARS_MAX,
    PageSummary,
)

TAGS_MAX: Final = 300

# Possessive quantifiers prevent backtracking. Bounded quantifiers limit the match length.
_TAG = re.compile(
    r"""<meta\b(?:[^"'<>]{1,2048}+|"[^"]{0,4096}+"|'[^']{0,4096}+'){0,32}+>"""
    r"|<title\b[^<>]{0,256}+>([^<]{0,1024}+)",
    re.IGNORECASE,
)
_CHARSET = re.compile(rb"""<meta\b[^<>]{0,256}?charset\s{0,8}=\s{0,8}["']?([\w-]{1,32})""", re.I)
# Python's other codecs are excluded: some are slow ("punycode") or do not decode text ("zlib").
_CHARSETS: Final = frozenset(
    {
        *("utf-8", "utf8", "us-ascii", "iso-8859-1", "iso-8859-2", "iso-8859-15"),
        *("windows-1250", "windows-1251", "windows-1252", "windows-1254", "windows-1256"),
        *("koi8-r", "gb2312", "gbk", "gb18030", "big5", "shift_jis", "shift-jis"),
        *("euc-jp", "euc-kr"),
    }
)
# Control characters, and characters that reorder or hide text.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]+"
)

_TITLE: Final = ("og:title", "twitter:title")
_DESCRIPTION: Final = ("og:description", "twitter:description", "description")
_SITE: Final = ("og:site_name", "application-name")
_PICTURE: Final = (
    "og:image:secure_url", "og:image", "og:image:url", "twitter:image", "twitter:image:src",
)  # fmt: skip


class _MetaTag(HTMLParser):
    """Reads one `meta` tag."""

    def __init__(self) -> None:
        super().__init__()
        self.name = ""
        self.content = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {
            name: value or "" for name, value in reversed(attrs)
        }  # if an attribute occurs twice, the first one wins
        self.name = (attributes.get("property") or attributes.get("name") or "").strip().lower()
        self.content = attributes.get("content", "")


def parse_page(content: bytes, content_type: str, url: str) -> PageSummary:
    """Return the summary of the page at `url`; a field is empty if the page does not declare it.

    Guarantees:
        Bounded: takes about linear time in the length of `content`, whatever it contains.
    """
    text = content.decode(_get_charset(content, content_type), "replace")
    title, properties = "", dict[str, str]()
    for number, match in enumerate(_TAG.finditer(text)):
        if number >= TAGS_MAX:
            break
        if match[1] is not None:
            title = title or unescape(match[1])
            continue
        tag = _MetaTag()
        tag.feed(match[0])
        if tag.name and tag.content:
            properties.setdefault(tag.name, tag.content)
    return PageSummary(
        title=_clean_text(_first(properties, _TITLE) or title, TITLE_CHARS_MAX),
        description=_clean_text(_first(properties, _DESCRIPTION), DESCRIPTION_CHARS_MAX),
        site=_clean_text(_first(properties, _SITE), SITE_CHARS_MAX),
        picture=_make_absolute(url, _first(properties, _PICTURE)),
    )


def _first(properties: dict[str, str], names: tuple[str, ...]) -> str:
    return next((properties[name] for name in names if name in properties), "")


def _clean_text(text: str, chars_max: int) -> str:
    """Return `text` as one line, cut to `chars_max` characters."""
    plain = " ".join(_UNPRINTABLE.sub(" ", text).split())
    return plain if len(plain) <= chars_max else truncate(plain, chars_max - 1).rstrip() + "…"


def _make_absolute(url: str, reference: str) -> str:
    if not reference or len(reference) > URL_CHARS_MAX:
        return ""
    try:
        joined = URL(url).join(URL(reference.strip()))
    except ValueError:
        return ""
    text = str(joined)
    return text if joined.scheme in ("http", "https") and len(text) <= URL_CHARS_MAX else ""


def _get_charset(content: bytes, content_type: str) -> str:
    _, _, declared = content_type.lower().partition("charset=")
    name = declared.split(";")[0].strip(" \"'")
    if not name and (match := _CHARSET.search(content[:4096])):
        name = match[1].decode("ascii", "replace").lower()
    return name if name in _CHARSETS else "utf-8"
