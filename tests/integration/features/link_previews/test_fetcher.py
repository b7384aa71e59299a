"""The fetcher of link previews on a real web site: what it reads, and what it refuses to read."""

from __future__ import annotations

import pytest

from chatserver.features.link_previews.model import (
    PICTURE_BYTES_MAX,
    REDIRECTS_MAX,
    PageSummary,
    Picture,
)
from tests.integration.features.link_previews.support import LOOPBACK, PNG, Site, fetcher

NOTHING = PageSummary()


async def test_page_is_summarized_and_its_picture_fetched(site: Site) -> None:
    """The type of a picture is that of its bytes, whatever the site declares."""
    reader = fetcher(LOOPBACK)

    found = await reader.fetch_page(f"{site.url}/page")
    picture = await reader.fetch_picture(found.picture)

    assert found == PageSummary("Tea & cake", "How to", "Kitchen", f"{site.url}/picture")
    assert picture == Picture("image/png", PNG)
    assert "Cookie" not in site.headers[0]
    assert site.headers[0]["User-Agent"].startswith("chatserver/")


async def test_redirects_are_followed_up_to_their_bound(site: Site) -> None:
    """The picture's URL is relative to the last page."""
    reader = fetcher(LOOPBACK)

    near = await reader.fetch_page(f"{site.url}/{'to/' * REDIRECTS_MAX}page")
    far = await reader.fetch_page(f"{site.url}/{'to/' * (REDIRECTS_MAX + 1)}page")
    site.asked.clear()
    endless = await reader.fetch_page(f"{site.url}/loop")

    assert near.picture == f"{site.url}/picture"
    assert (far, endless) == (NOTHING, NOTHING)
    assert len(site.asked) == REDIRECTS_MAX + 1


async def test_endless_page_is_read_up_to_its_bound(site: Site) -> None:
    """Its head is enough."""
    assert (await fetcher(LOOPBACK).fetch_page(f"{site.url}/long")).title == "Tea & cake"


async def test_link_to_a_picture_is_a_preview_of_it(site: Site) -> None:
    """There is no page around it."""
    url = f"{site.url}/picture"

    assert await fetcher(LOOPBACK).fetch_page(url) == PageSummary(picture=url)


@pytest.mark.parametrize("path", ["json", "error", "gzip", "none"])
async def test_answer_that_is_no_plain_page_is_no_preview(site: Site, path: str) -> None:
    """Other types, errors, and content that is compressed without being requested."""
    assert await fetcher(LOOPBACK).fetch_page(f"{site.url}/{path}") == NOTHING
    assert site.asked == [f"/{path}"]


@pytest.mark.constants({"chatserver.features.link_previews.model.FETCH_S": 0.5})
async def test_silent_site_is_no_preview_after_the_deadline(site: Site) -> None:
    """Nor does it hold one of the slots after that."""
    reader = fetcher(LOOPBACK)

    assert await reader.fetch_page(f"{site.url}/silent") == NOTHING
    assert reader._slots._value == 16


@pytest.mark.parametrize("path", ["script.svg", "page", "long", "none"])
async def test_picture_in_another_format_or_too_long_is_none(site: Site, path: str) -> None:
    """No format that may contain a script, and none that is longer than allowed."""
    assert PICTURE_BYTES_MAX > 0

    assert await fetcher(LOOPBACK).fetch_picture(f"{site.url}/{path}") is None
    assert site.asked == [f"/{path}"]
