"""Contents of messages in the web client: emoji, code, and previews of links."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.e2e.web.client_support import Visit, open_visits
from tests.e2e.web_support import WebStack
from tests.integration.features.link_previews.support import open_site

pytest_plugins = ["tests.e2e.web_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def visit(web: WebStack, browser: Browser) -> AsyncIterator[Visit]:
    """Open windows of the client."""
    async with open_visits(web, browser) as made:
        yield made


async def pick(page: Page, name: str) -> None:
    """Choose an emoji in the open picker by keyboard."""
    picker = page.get_by_role("dialog", name="Emoji")
    search = picker.get_by_role("searchbox", name="Search emoji")
    await expect(search).to_be_focused()
    await search.fill(name)
    cell = picker.get_by_role("gridcell", name=name, exact=True)
    await expect(cell).to_be_visible()
    for _ in range(5):
        if await cell.get_attribute("aria-selected") != "true":
            await search.press("ArrowDown")
    await expect(cell).to_have_attribute("aria-selected", "true")
    await search.press("Enter")
    await expect(picker).to_have_count(0)


async def test_emoji_code_and_link_previews(web: WebStack, visit: Visit) -> None:
    """Any emoji by keyboard, in the text and as a reaction; code is copied; a link has a card."""
    a, b = web.new_users(2)
    ann, ben = await visit(a), await visit(b)
    await ann.log_in()
    await ben.log_in()
    await ann.start_chat(b)
    await ann.field.fill("Off we go ")
    await ann.page.get_by_role("button", name="Emoji").press("Enter")
    await pick(ann.page, "Rocket")
    await expect(ann.field).to_be_focused()
    await expect(ann.field).to_have_value("Off we go 🚀")
    await ann.field.press("Enter")

    await ben.open_chat(a)
    await ben.messages("Off we go 🚀").focus()
    await ben.page.keyboard.press("Enter")
    await ben.page.get_by_role("menuitem", name="More reactions").press("Enter")
    await pick(ben.page, "Taco")
    await expect(ann.messages("Off we go").get_by_text("🌮 1")).to_be_visible()

    await ann.send("Run this:\n```py\nprint('hello')\n```")
    await ben.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await ben.messages("Run this").get_by_role("button", name="Copy code").click()
    await expect(ben.messages("Run this").get_by_role("button", name="Copied")).to_be_visible()
    assert await ben.page.evaluate("navigator.clipboard.readText()") == "print('hello')"

    async with open_site() as site:
        await ann.send(f"See {site.url}/page and {site.url}/none")
        card = ben.messages("See http").get_by_role("link", name="Link to Kitchen: Tea & cake")
        await expect(card).to_contain_text("How to")
        await expect(card).to_have_attribute("href", f"{site.url}/page")
        assert set(site.asked) == {"/page", "/picture"}
    for person in (ann, ben):
        await person.check_is_clean()
