"""Link previews over HTTP: one fetch for all readers, and harmless pictures."""

from __future__ import annotations

import asyncio

import pytest

from chatserver.client import ChatClient
from chatserver.dev.servers import Server
from chatserver.errors import Unavailable
from tests.integration.api.support import Caller, problem_of
from tests.integration.features.link_previews.support import LOOPBACK, PNG, Site
from tests.support.servers.processes import eventually
from tests.support.stack import NewName, Stack

PREVIEW, PICTURE = "/v1/link-preview", "/v1/link-preview/picture"


@pytest.fixture(scope="session")
def api(stack: Stack) -> Server:
    """An API whose link previews may reach the web site."""
    return stack.start_api(**{"chatserver.features.link_previews.model.PRIVATE_NETWORKS": LOOPBACK})


async def test_preview_is_fetched_once_and_served_to_all(
    caller: Caller, new_name: NewName, site: Site
) -> None:
    """The second reader gets the cached preview; the URL fragment is not part of the cache key."""
    url = f"{site.url}/page?of={new_name('p')}"

    first = await caller(new_name("ann")).get(PREVIEW, params={"url": f"{url}#part"})
    second = await caller(new_name("ben")).get(PREVIEW, params={"url": url})

    assert first.status_code == second.status_code == 200, first.text
    shown = second.json()
    assert (shown["title"], shown["description"], shown["site"]) == (
        "Tea & cake",
        "How to",
        "Kitchen",
    )
    assert first.json()["title"] == "Tea & cake"
    assert site.paths == ["/page"]


async def test_picture_is_served_by_the_api_with_safe_headers(
    caller: Caller, new_name: NewName, site: Site
) -> None:
    """Its type is detected from its bytes, and a login is required."""
    reader = caller(new_name("ann"))
    shown = (
        await reader.get(PREVIEW, params={"url": f"{site.url}/page?of={new_name('p')}"})
    ).json()

    answer = await reader.get(shown["picture"])

    assert (answer.status_code, answer.content) == (200, PNG)
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; sandbox")
    assert answer.headers["cache-control"] == "private, max-age=86400"
    without_login = await caller("").get(shown["picture"])
    assert problem_of(without_login) == (401, "unauthenticated")


async def test_page_without_preview_is_not_found_and_not_fetched_again(
    caller: Caller, new_name: NewName, site: Site
) -> None:
    """Every reason has the same response, so the route cannot be used to scan a network."""
    reader, suffix = caller(new_name("ann")), new_name("p")
    urls = [f"{site.url}/{path}?of={suffix}" for path in ("error", "json", "none", "svg")]
    urls.append("http://10.0.0.1/")

    answers = [await reader.get(PREVIEW, params={"url": url}) for url in [*urls[:3], urls[4]] * 2]
    picture = await reader.get(PICTURE, params={"url": urls[3]})

    assert [problem_of(answer) for answer in answers] == [(404, "not_found")] * 8
    assert len({answer.json()["detail"] for answer in answers}) == 1
    assert problem_of(picture) == (404, "not_found")
    assert site.paths == ["/error", "/json", "/none", "/svg", "/script.svg"]


@pytest.mark.parametrize(
    "url",
    ["", "ftp://example.org/", "javascript:alert(1)", "http://", "//x", "http://a:b@example.org/",
     "https://example.org/" + "x" * 2048],
)  # fmt: skip
async def test_invalid_url_is_refused_by_field(caller: Caller, new_name: NewName, url: str) -> None:
    answer = await caller(new_name("ann")).get(PREVIEW, params={"url": url})

    assert problem_of(answer) == (400, "bad_request")
    assert "url" in answer.json()["detail"]


async def test_preview_refused_by_a_busy_server_can_be_requested_again(
    stack: Stack, new_name: NewName, site: Site
) -> None:
    """The refusal is not cached. The SDK raises a temporary error."""
    model = "chatserver.features.link_previews.model"
    busy = stack.start_api(
        **{
            f"{model}.PRIVATE_NETWORKS": LOOPBACK,
            f"{model}.FETCHES_MAX": "1",
            f"{model}.WAIT_S": "0.1",
            f"{model}.FETCH_S": "120",
        }
    )
    gateway, url = f"ws://127.0.0.1:{stack.port}/", f"{site.url}/page?of={new_name('p')}"
    tokens = [stack.token(new_name(name)) for name in ("ann", "ben")]
    async with (
        ChatClient(gateway, tokens[0], api_url=busy.endpoint) as ann,
        ChatClient(gateway, tokens[1], api_url=busy.endpoint) as ben,
    ):
        slow = asyncio.create_task(ann.link_preview(f"{site.url}/held?of={new_name('p')}"))
        await eventually(lambda: site.paths == ["/held"])

        with pytest.raises(Unavailable, match="too many link previews"):
            await ben.link_preview(url)
        site.release_held.set()
        held = await slow
        shown = await ben.link_preview(url)
        nothing = await ben.link_preview(f"{site.url}/none?of={new_name('p')}")

    assert held is not None
    assert shown is not None
    assert (held.title, shown.title, shown.site, shown.url) == (
        "Tea & cake",
        "Tea & cake",
        "Kitchen",
        url,
    )
    assert str(shown.picture).startswith("/v1/link-preview/picture?url=")
    assert nothing is None
