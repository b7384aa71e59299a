"""The page of who operates the installation, in the browser: charts for whoever may see it."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Locator, Page, Route, expect

from tests.e2e.test_web_access import _WEAK_TEXTS
from tests.e2e.web_support import ADMIN, PHONE, WIDE, Arrive, Person, WebStack

pytest_plugins = ["tests.e2e.web_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")

DEADLINE_MS = 60_000
# What a chart, a table or a button is called; and whether anything is wider than the window.
_NAMELESS = """() => [...document.querySelectorAll(
    "#admin button, #admin [role=slider], #admin [tabindex='0'], #admin table, #admin section")]
  .filter((one) => one.checkVisibility())
  .filter((one) => !(one.getAttribute("aria-label") || one.caption || one.textContent.trim()))
  .map((one) => one.outerHTML.slice(0, 200))"""
_WIDE_PARTS = """() => [...document.querySelectorAll("#admin .card, #admin .chat-head")]
  .filter((one) => one.getBoundingClientRect().right > innerWidth + 0.5)
  .map((one) => one.textContent.slice(0, 40))"""


async def open_operations(person: Person) -> Page:
    """Go there by the menu, and wait for the first figures."""
    page = person.page
    await page.get_by_role("button", name="Account menu").click()
    await page.get_by_role("button", name="Operations").click(timeout=DEADLINE_MS)
    await expect(page.get_by_role("heading", name="Operations")).to_be_focused()
    await expect(chart(page, "Connections")).to_be_visible(timeout=DEADLINE_MS)
    return page


def chart(page: Page, title: str) -> Locator:
    """The part of a chart that a pointer or the arrow keys move over."""
    return page.get_by_role("slider", name=title, exact=True)


async def test_admin_sees_charts_by_eye_keyboard_and_table(web: WebStack, arrive: Arrive) -> None:
    """What was just sent shows; a chart is read with arrow keys and as a table; nothing is wide."""
    ann, ben = web.new_users(2)
    alice = await arrive(ann)
    await alice.start_chat(ben)
    admin = await arrive(ADMIN, PHONE, color_scheme="dark")
    page = await open_operations(admin)
    for number in range(5):
        await alice.send(f"n{number}")

    shown = page.get_by_role("region", name="Busiest chats").locator(".bar-line")
    await expect(shown.first).to_be_visible(timeout=DEADLINE_MS)
    processes = page.get_by_role("region", name="Processes", exact=True).last
    for kind in ("gateway", "worker", "api"):
        await expect(processes.get_by_text(re.compile(f"^{kind}")).first).to_be_visible()
    sessions = chart(page, "Connections")
    await expect(sessions).to_have_attribute(
        "aria-valuetext", re.compile(r"sessions [1-9]"), timeout=DEADLINE_MS
    )
    await sessions.focus()
    await page.keyboard.press("Home")
    await expect(sessions).to_have_attribute("aria-valuenow", "0")
    await expect(sessions.locator(".chart-cursor")).to_have_count(1)
    await page.keyboard.press("Escape")
    await expect(sessions.locator(".chart-cursor")).to_have_count(0)
    card = page.locator(".chart").filter(has=sessions)
    await card.get_by_text("View as table").click()
    await expect(card.get_by_role("row").nth(1)).to_contain_text(re.compile(r"\d\d:\d\d:\d\d"))
    assert await page.evaluate(_WIDE_PARTS) == []
    assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    assert await page.evaluate(_NAMELESS) == []
    assert await page.evaluate(_WEAK_TEXTS) == []
    await page.emulate_media(color_scheme="light")
    assert await page.evaluate(_WEAK_TEXTS) == []

    await page.get_by_role("button", name="Back to chats").click()
    await expect(page.get_by_role("navigation", name="Chats")).to_be_visible()
    for person in (alice, admin):
        await person.check_is_clean()


async def test_admin_page_says_what_is_wrong_and_comes_back(web: WebStack, arrive: Arrive) -> None:
    """Figures that come no more are named as old; who is no admin hears so and has no link."""
    admin, zoe = await arrive(ADMIN, WIDE), await arrive(web.new_users(1)[0])
    page = await open_operations(admin)
    old = page.locator(".admin-column.is-old")

    async def cut(route: Route) -> None:
        await route.abort()

    await page.route("**/v1/admin/overview*", cut)
    await expect(page.get_by_text("The API is not responding.")).to_be_visible(timeout=DEADLINE_MS)
    await expect(old).to_have_count(1)
    await page.unroute("**/v1/admin/overview*", cut)
    await expect(old).to_have_count(0, timeout=DEADLINE_MS)
    await expect(page.get_by_text("The API is not responding.")).to_have_count(0)

    await zoe.page.goto(f"{web.url}#/admin")
    await expect(zoe.page.get_by_role("heading", name="Admins only")).to_be_visible()
    await expect(zoe.page.locator(".hint code")).to_have_text(
        ["CHAT_AUTH_ADMINS", "chatserver api"]
    )
    async with zoe.page.expect_response("**/v1/me"):
        await zoe.page.goto(web.url)
        await zoe.page.get_by_role("button", name="Account menu").click()
    await expect(zoe.page.get_by_role("button", name="Operations")).to_be_hidden()
    await admin.check_is_clean(had_outage=True)
    await zoe.check_is_clean(had_outage=True)  # a refusal is a line in the console
