"""The companions page of the web client: sessions, memory, and management with an API key."""

from __future__ import annotations

import re

from playwright.async_api import Browser, expect

from tests.e2e.web.pages_support import SMALL, check_page, open_page
from tests.e2e.web.stack_support import ADMIN, WebStack
from tests.integration.features.companions.support import make_companion
from tests.security.support.users import make_key


async def test_session_is_started_continued_and_ended(web: WebStack, browser: Browser) -> None:
    """A session starts from the card, is continued, shows its memory and ends."""
    (ann,) = web.new_users(1)
    await make_companion(web.stack, "ai-next-ada", "Ada Next", "echo")

    async with open_page(web, browser, ann, "companions", size=SMALL) as page:
        await page.get_by_role("button", name="Chat: Ada Next").click()
        await expect(page).to_have_url(re.compile("/chats/"))
        chat = page.url
        await page.goto(f"{web.url}companions")
        await page.get_by_role("button", name="Continue: Ada Next").click()
        await expect(page).to_have_url(chat)
        await page.goto(f"{web.url}companions")
        card = page.get_by_role("list", name="Companions").get_by_role("listitem")
        card = card.filter(has_text="Ada Next")
        await card.get_by_role("button", name="Actions for Ada Next").click()
        await page.get_by_role("menuitem", name="Memory").click()
        await expect(page.get_by_role("dialog")).to_contain_text("What Ada Next remembers")
        remember = page.get_by_role("switch", name=re.compile("Remember across sessions"))
        await remember.uncheck()
        await expect(page.get_by_text("Memory is off.")).to_be_visible()
        await check_page(page)
        await page.keyboard.press("Escape")
        await card.get_by_role("button", name="Actions for Ada Next").click()
        await page.get_by_role("menuitem", name="End session").click()
        await page.get_by_role("dialog").get_by_role("button", name="End session").click()
        sessions = page.get_by_role("list", name="Sessions").get_by_role("listitem")
        await expect(sessions.filter(has_text="Ada Next")).to_contain_text("Ended")
        await check_page(page)


async def test_operator_creates_edits_and_deletes_a_companion_with_a_key(
    web: WebStack, browser: Browser
) -> None:
    """An invalid key is refused; temperature and a tool are saved; a wrong schema is reported."""
    key = await make_key(web.stack, "companions:read", "companions:write", "holds")

    async with open_page(web, browser, ADMIN, "companions") as page:
        await page.get_by_role("textbox", name="API key").fill("no-key")
        await page.get_by_role("button", name="Use key").click()
        await expect(page.get_by_role("alert")).to_be_visible()
        await page.get_by_role("textbox", name="API key").fill(key)
        await page.get_by_role("button", name="Use key").click()
        await page.get_by_role("button", name="New companion").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Name", exact=True).fill("Zoe")
        await dialog.get_by_label("ID (optional)").fill("ai-next-zoe")
        await dialog.get_by_label("Provider").select_option("scripted")
        await dialog.get_by_label("Model", exact=True).fill("echo")
        await dialog.get_by_label("Temperature").fill("warm")
        await dialog.get_by_role("button", name="Save").click()
        await expect(dialog.get_by_text("Temperature: enter a number.")).to_be_visible()
        await dialog.get_by_label("Temperature").fill("0.5")
        await dialog.get_by_role("button", name="Add a tool").click()
        await dialog.get_by_label("Tool name").fill("get_time")
        await dialog.get_by_label("Description").fill("The time")
        await dialog.get_by_label("URL", exact=True).fill("https://tools.example/time")
        await dialog.get_by_label(re.compile("Input schema")).fill("{")
        await dialog.get_by_role("button", name="Save").click()
        await expect(dialog.get_by_text("must be a JSON object")).to_be_visible()
        await dialog.get_by_label(re.compile("Input schema")).fill('{"type": "object"}')
        await check_page(page)
        await dialog.get_by_role("button", name="Save").click()
        rows = page.get_by_role("list", name="Manage companions").get_by_role("listitem")
        row = rows.filter(has_text="ai-next-zoe")
        await expect(row).to_contain_text("Newest version: 1")

        await row.get_by_role("button", name="Actions for Zoe").click()
        await page.get_by_role("menuitem", name="Edit").click()
        await expect(dialog.get_by_label("Temperature")).to_have_value("0.5")
        await expect(dialog.get_by_label("Tool name")).to_have_value("get_time")
        await dialog.get_by_label("Instructions").fill("Be brief.")
        await dialog.get_by_role("button", name="Save").click()
        await expect(row).to_contain_text("Newest version: 2")
        await row.get_by_role("button", name="Actions for Zoe").click()
        await page.get_by_role("menuitem", name="Delete").click()
        await dialog.get_by_role("button", name="Delete").click()
        await expect(row).to_have_count(0)
