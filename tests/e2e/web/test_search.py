"""Search in the web client: words, filters, and opening a result in its chat."""

from __future__ import annotations

import re

from playwright.async_api import Browser, expect

from tests.e2e.web.conversation_support import fill_chat
from tests.e2e.web.pages_support import SMALL, check_page, open_caller, open_page
from tests.e2e.web.stack_support import PATIENCE_MS, WebStack
from tests.support.servers.processes import eventually


async def test_search_is_narrowed_by_filters_and_opens_the_message(
    web: WebStack, browser: Browser
) -> None:
    """A typed qualifier becomes a filter chip; a match is marked; a result opens its message."""
    ann, ben, cy = web.new_users(3)
    async with open_caller(web, ann) as a, open_caller(web, ben) as b, open_caller(web, cy) as c:
        with_ben, with_cy = await a.open_direct(ben), await a.open_direct(cy)
        await b.send(with_ben, "The zeppelin <i>lands</i> at noon")
        await c.send(with_cy, "No zeppelin today")

    async with open_page(web, browser, ann, "search") as page:
        results = page.get_by_role("list", name="Search results").get_by_role("listitem")
        field = page.get_by_label("Search messages")
        await field.fill("zeppelin")
        # Indexing takes seconds, so the search is repeated.
        for _ in range(PATIENCE_MS // 1_000):
            try:
                await expect(results).to_have_count(2, timeout=1_000)
                break
            except AssertionError:
                await page.reload()
        await expect(results).to_have_count(2)
        await expect(results.first.locator("mark")).to_have_text("zeppelin")
        await field.fill(f"zeppelin from:{ben} ")
        await expect(
            page.get_by_role("button", name=re.compile("Remove filter From"))
        ).to_be_visible()
        await expect(results).to_have_count(1)
        await expect(results).to_contain_text("<i>lands</i>")
        await check_page(page)
        await results.get_by_role("link").click()
        await expect(page.get_by_role("main")).to_contain_text("<i>lands</i> at noon")
        await expect(results).to_have_count(1)
        await field.press("Home")
        await field.press("Backspace")
        await expect(results).to_have_count(2)


async def test_search_by_filter_menu_on_a_phone(web: WebStack, browser: Browser) -> None:
    """A filter from the menu without results can be cleared."""
    ann, ben = web.new_users(2)
    async with open_caller(web, ann) as a:
        await a.open_direct(ben)

    async with open_page(web, browser, ann, "search", size=SMALL) as page:
        await expect(page.get_by_text("Find any message")).to_be_visible()
        await check_page(page)
        await page.get_by_role("button", name="Add a filter").click()
        await page.get_by_role("menuitem", name="With files").click()
        await expect(page.get_by_text("No messages found")).to_be_visible()
        await page.get_by_role("button", name="Clear search").click()
        await expect(page.get_by_text("Find any message")).to_be_visible()


async def test_search_finds_far_messages_page_by_page(web: WebStack, browser: Browser) -> None:
    """Search ignores accents, matches prefixes, loads more pages, and opens distant messages."""
    ann, ben = web.new_users(2)
    async with open_caller(web, ann) as a:
        chat = await a.create_group("Recipes", ben)
        await a.send(chat, "Frühstück at <img src=x onerror=alert(1)> nine")
    async with web.stack.chat_of(ann) as writer:
        await fill_chat(writer, chat, 145, lambda number: f"risotto {number}")

    async with open_caller(web, ben) as b:

        async def is_indexed() -> bool:
            found = await b.call("GET", "/v1/search?q=%22risotto+145%22")
            return bool(found["items"])

        await eventually(is_indexed, PATIENCE_MS / 1000, "the messages are in the index")
    async with open_page(web, browser, ben, "search") as page:
        results = page.get_by_role("list", name="Search results").get_by_role("listitem")
        field = page.get_by_label("Search messages")
        await field.fill("risotto")
        await results.nth(19).scroll_into_view_if_needed()
        await expect(results.nth(39)).to_be_attached()

        await field.fill('"onerror alert')  # as typed, before the closing quote
        await expect(results).to_have_count(1)
        await field.fill("fruhst")
        await expect(results.locator("mark")).to_have_text("Frühstück")
        await results.get_by_role("link").click()
        found = page.get_by_role("log").get_by_role("article").filter(has_text="onerror=alert(1)")
        await expect(found).to_be_in_viewport()
        await expect(found).to_have_attribute("tabindex", "0")
        await field.fill("nothinglikethis")
        await expect(page.get_by_text("No messages found")).to_be_visible()
