"""The fetcher of link previews with a real web site."""

from __future__ import annotations

import pytest

from chatserver.features.link_previews.model import (
    REDIRECTS_MAX,
    PageSummary,
    PreviewPicture,
)
from tests.integration.features.link_previews.support import LOOPBACK, PNG, Site, fetcher

NOTHING = PageSummary()


async def test_page_is_summarized_and_its_picture_fetched(site: Site) -> None:
    """The picture's type is detected from its bytes and not from the header."""
    reader = fetcher(LOOPBACK)

    found = await reader.fetch_page(f"{site.url}/page")
    picture = await reader.fetch_picture(found.picture)

    assert found == PageSummary("Tea & cake", "How to", "Kitchen", f"{site.url}/picture")
    assert picture == PreviewPicture("image/png", PNG)
    assert "Cookie" not in site.headers[0]
    assert site.headers[0]["User-Agent"].startswith("chatserver/")


async def test_redirects_are_followed_up_to_the_limit(site: Site) -> None:
    reader = fetcher(LOOPBACK)

    near = await reader.fetch_page(f"{site.url}/{'to/' * REDIRECTS_MAX}page")
    far = await reader.fetch_page(f"{site.url}/{'to/' * (REDIRECTS_MAX + 1)}page")
    site.paths.clear()
    endless = await reader.fetch_page(f"{site.url}/loop")

    assert near.picture == f"{site.url}/picture"
    assert (far, endless) == (NOTHING, NOTHING)
    assert len(site.paths) == REDIRECTS_MAX + 1


async def test_endless_page_is_read_up_to_the_limit(site: Site) -> None:
    """The head of the page is enough for a preview."""
    assert (await fetcher(LOOPBACK).fetch_page(f"{site.url}/long")).title == "Tea & cake"


async def test_link_to_a_picture_has_it_as_its_preview(site: Site) -> None:
    url = f"{site.url}/picture"

    assert await fetcher(LOOPBACK).fetch_page(url) == PageSummary(picture=url)


@pytest.mark.parametrize("path", ["json", "error", "gzip", "none"])
async def test_response_that_is_not_a_plain_page_has_no_preview(site: Site, path: str) -> None:
    """Another type, an error and compressed content that was not requested have no preview."""
    assert await fetcher(LOOPBACK).fetch_page(f"{site.url}/{path}") == NOTHING
    assert site.paths == [f"/{path}"]


@pytest.mark.constants({"chatserver.features.link_previews.model.FETCH_S": 0.5})
async def test_silent_site_has_no_preview_after_the_deadline(site: Site) -> None:
    """Its slot is released."""
    reader = fetcher(LOOPBACK)

    assert await reader.fetch_page(f"{site.url}/silent") == NOTHING
    assert reader._slots._free == 16


@pytest.mark.parametrize("path", ["script.svg", "page", "long", "none"])
async def test_picture_in_another_format_or_too_large_is_refused(site: Site, path: str) -> None:
    """SVG can contain scripts."""
    assert await fetcher(LOOPBACK).fetch_picture(f"{site.url}/{path}") is None
    assert site.paths == [f"/{path}"]
