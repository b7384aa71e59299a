"""Link previews do not reach the internal network, although users choose the URLs (SSRF)."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from urllib.parse import urlsplit

import pytest

from chatserver.features.link_previews.model import PageSummary
from tests.integration.features.link_previews.support import LOOPBACK, Site, fetcher, open_site

NOTHING = PageSummary()
PUBLIC = "93.184.215.14"
# Spellings of 127.0.0.1 and of other addresses that only the server can reach.
PRIVATE = [
    "127.0.0.1",
    "127.1",
    "0",
    "0.0.0.0",
    "2130706433",
    "0x7f.0.0.1",
    "0x7f000001",
    "0177.0.0.1",
    "localhost",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:7f00:1::]",
    "[fe80::1]",
    "[fd00:ec2::254]",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "168.63.129.16",
]  # fmt: skip


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A site on loopback."""
    async with open_site() as opened:
        yield opened


def port_of(site: Site) -> int:
    return urlsplit(site.url).port or 0


@pytest.mark.parametrize("host", PRIVATE)
async def test_private_address_in_any_spelling_is_never_fetched(site: Site, host: str) -> None:
    """Neither a page nor a picture is fetched, also on an allowed port."""
    reader = fetcher(ports=[port_of(site)])

    assert await reader.fetch_page(f"http://{host}:{port_of(site)}/page") == NOTHING
    assert await reader.fetch_picture(f"http://{host}:{port_of(site)}/picture") is None
    assert site.paths == []


async def test_redirect_from_a_public_site_to_loopback_is_not_followed(site: Site) -> None:
    """The address of every redirect is checked."""

    async def lookup(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"] if host == "public.example" else ["127.0.0.2"]

    reader = fetcher("127.0.0.1/32", lookup=lookup)
    url = f"http://public.example:{port_of(site)}/to/http:/inside.example:{port_of(site)}/page"

    assert await reader.fetch_page(url) == NOTHING
    assert [path.split("/")[1] for path in site.paths] == ["to"]


async def test_dns_rebinding_to_a_private_address_is_not_followed(site: Site) -> None:
    """Each fetch resolves the name once and connects to the address that was checked."""
    addresses = itertools.cycle([["127.0.0.1"], ["127.0.0.2"]])
    asked: list[str] = []

    async def lookup(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return next(addresses)

    reader = fetcher("127.0.0.1/32", lookup=lookup)
    url = f"http://rebind.example:{port_of(site)}/page"
    first, second = await reader.fetch_page(url), await reader.fetch_page(url)

    assert (first.title, second) == ("Tea & cake", NOTHING)
    assert len(asked) == 2
    assert site.paths == ["/page"]


async def test_name_with_a_public_and_a_private_address_is_not_fetched(site: Site) -> None:
    """One private address of a name is enough to refuse it."""

    async def lookup(host: str, port: int) -> Sequence[str]:
        return [PUBLIC, "127.0.0.1"]

    assert (
        await fetcher(lookup=lookup, ports=[port_of(site)]).fetch_page(
            f"http://mixed.example:{port_of(site)}/page"
        )
        == NOTHING
    )
    assert site.paths == []


@pytest.mark.parametrize(
    "location",
    ["file:///etc/passwd", "gopher://127.0.0.1/", "ftp://127.0.0.1/", "//user:pass@127.0.0.1/"],
)
async def test_redirect_to_another_scheme_or_with_a_password_is_not_followed(
    site: Site, location: str
) -> None:
    """Only http and https without credentials are followed."""
    found = await fetcher(LOOPBACK).fetch_page(f"{site.url}/to/{location}")

    assert found == NOTHING
