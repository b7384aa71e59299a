"""Accessibility of the web client: keyboard, phone, screen reader, themes, right-to-left layout."""

from __future__ import annotations

import re

from playwright.async_api import Page, expect

from tests.e2e.web.client_support import Visit
from tests.e2e.web.pages_support import WIDER_THAN_WINDOW, check_page
from tests.e2e.web.stack_support import PHONE, WebStack

BACKGROUND = "getComputedStyle(document.body).backgroundColor"
# Finds elements that extend beyond the window. A list may scroll, so its hidden part is ignored.
OVERFLOWING = """() => [...document.querySelectorAll(
    "header, [role=article], [role=menu], dialog")]
  .filter((element) => element.checkVisibility())
  .filter((element) => {
    const { left, right } = element.getBoundingClientRect();
    return left < -0.5 || right > innerWidth + 0.5;
  })
  .map((element) => element.outerHTML.slice(0, 200))"""

# Finds messages whose timestamp covers part of the text.
COVERED = """() => [...document.querySelectorAll(
    "[data-first] p:has([aria-hidden])")].filter((text) => {
  const time = text.closest("[data-first]").lastElementChild.getBoundingClientRect();
  const range = document.createRange();
  range.selectNodeContents(text);
  range.setEndBefore(text.querySelector("[aria-hidden]"));
  return [...range.getClientRects()].some((line) =>
    line.left < time.right && time.left < line.right && line.bottom > time.top + 4);
}).map((text) => text.textContent)"""


async def check_width(page: Page) -> None:
    """Check that no element is wider than the window."""
    assert await page.evaluate(OVERFLOWING) == []
    assert not await page.evaluate(WIDER_THAN_WINDOW)


async def test_chats_are_usable_by_keyboard_alone(web: WebStack, visit: Visit) -> None:
    """Chats are started, found, answered and left without a mouse, with visible focus."""
    ann, ben, cy = web.new_users(3)
    alice, bob = await visit(ann), await visit(ben, is_logged_in=False)
    page, keys = alice.page, alice.page.keyboard
    title = page.get_by_role("main").get_by_role("heading", level=1)
    chat_filter = page.get_by_role("textbox", name="Filter chats")

    for other in (ben, cy):
        await keys.press("Alt+n")
        await expect(page.get_by_label("Username")).to_be_focused()
        await keys.type(other)
        await keys.press("Enter")
        await expect(title).to_have_text(other)
        await expect(alice.field).to_be_focused()
        await keys.type(f"Hello {other}")
        await keys.press("Shift+Enter")
        await keys.type("from the keyboard")
        await keys.press("Enter")
        await expect(alice.messages("from the keyboard")).to_have_count(1)
    await keys.press("Alt+ArrowDown")
    await expect(title).to_have_text(ben)
    await keys.press("Control+k")
    await expect(chat_filter).to_be_focused()
    await keys.type(cy)
    await keys.press("ArrowDown")
    await keys.press("Enter")
    await expect(title).to_have_text(cy)
    await expect(alice.field).to_be_focused()
    await keys.type("?")
    await expect(alice.field).to_have_value("?")
    await keys.press("Escape")
    await expect(alice.row(cy)).to_be_focused()
    await expect(alice.field).to_have_count(0)

    shortcuts = page.get_by_role("dialog", name="Keyboard shortcuts")
    await keys.press("?")
    await expect(shortcuts).to_contain_text("Go to the newest message")
    await check_page(page)
    await keys.press("Escape")
    await expect(shortcuts).to_have_count(0)
    await expect(alice.row(cy)).to_be_focused()
    await keys.press("/")
    await expect(chat_filter).to_be_focused()

    await bob.log_in()
    await bob.open_chat(ann)
    await expect(bob.messages("from the keyboard")).to_have_count(1)
    keys = bob.page.keyboard
    while not await bob.page.evaluate("document.activeElement.matches('[role=article]')"):
        await keys.press("Shift+Tab")
    await keys.press("r")
    await expect(bob.field).to_be_focused()
    await keys.type("Answered")
    await keys.press("Enter")
    quote = bob.messages("Answered").get_by_role("button").filter(has_text=f"Hello {ben}")
    await expect(quote).to_be_visible()
    for person in (alice, bob):
        await person.check_is_clean()


async def test_phone_shows_one_screen_at_a_time_with_accessible_names(
    web: WebStack, visit: Visit
) -> None:
    """At 360 pixels, list and chat are separate screens, and nothing overflows."""
    ann, ben = web.new_users(2)
    async with web.stack.chat_of(ben) as writer:
        chat = await writer.open_direct(ann)
        for text in ("x" * 300, "https://chat.example/" + "y" * 300, "two words"):
            await writer.send(chat, text)
        alice = await visit(ann, PHONE)
        page = alice.page
        heading = page.get_by_role("heading", name="Chats", exact=True)
        await expect(alice.row(ben)).to_contain_text("3 unread messages")
        await check_width(page)
        await alice.open_chat(ben)
        await expect(heading).to_be_hidden()
        await expect(page.get_by_role("navigation", name="Main")).to_be_hidden()
        await alice.send("z" * 300)
        await expect(alice.messages("zzz")).to_have_count(1)
        await check_width(page)

        await writer.send(chat, "Can you hear me?")
        await expect(
            page.get_by_role("status").filter(has_text=f"{ben}: Can you hear me?")
        ).to_have_count(1)
    log = page.get_by_role("log", name=f"Messages with {ben}")
    await expect(log).to_be_visible()
    await expect(alice.messages("Can you hear me?")).to_have_accessible_name(
        re.compile(rf"^{ben}, .*: Can you hear me\?$")
    )
    await alice.messages("Can you hear me?").click(button="right")
    await check_width(page)
    await page.keyboard.press("Escape")

    await page.get_by_role("button", name="Back").click()
    await expect(heading).to_be_visible()
    await expect(alice.field).to_have_count(0)
    await alice.open_chat(ben)
    await page.go_back()
    await expect(heading).to_be_visible()
    await page.get_by_role("button", name="New chat").click()
    await page.get_by_role("menuitem", name="New group").click()
    await check_width(page)
    await alice.check_is_clean(had_outage=True)  # the link has no preview


async def test_theme_follows_the_system_until_one_is_chosen(web: WebStack, visit: Visit) -> None:
    """Light and dark follow the system. A choice overrides it and is stored in this browser."""
    alice = await visit(web.new_users(1)[0], color_scheme="dark")
    page = alice.page
    dark = await page.evaluate(BACKGROUND)
    await page.emulate_media(color_scheme="light")
    light = await page.evaluate(BACKGROUND)
    assert light != dark

    await page.goto(f"{alice.url}settings/appearance")
    await page.get_by_label("Theme").select_option("dark")
    assert await page.evaluate(BACKGROUND) == dark
    await page.reload()
    await expect(page.get_by_label("Theme")).to_have_value("dark")
    assert await page.evaluate(BACKGROUND) == dark
    await page.get_by_label("Theme").select_option("system")
    assert await page.evaluate(BACKGROUND) == light


async def test_layout_is_mirrored_right_to_left(web: WebStack, visit: Visit) -> None:
    """Panes, messages, composer, menus and arrows are mirrored; names keep their direction."""
    ann, ben = web.new_users(2)
    name = "טיול (2026)"
    async with web.stack.chat_of(ben) as writer:
        chat = await writer.create_group([ann], ref="rtl", name=name)
        for text in ("שלום, this is both", "English", "עברית", "English\n\n(שלום)"):
            await writer.send(chat, text)
    alice = await visit(ann)
    page = alice.page
    await alice.open_chat(name)
    await alice.send("שלי", "Mine")
    await expect(alice.messages("Mine")).to_have_count(1)
    assert await page.evaluate(COVERED) == []
    await page.evaluate("document.documentElement.dir = 'rtl'")
    assert await page.evaluate(COVERED) == []

    async def left_of(*selectors: str) -> list[float]:
        boxes = [await page.locator(each).first.bounding_box() for each in selectors]
        return [box["x"] for box in boxes if box is not None]

    panes = await left_of("nav", "[data-pane-name=list]", "main")
    assert len(panes) == 3 and panes == sorted(panes, reverse=True)
    bubbles = await left_of('[data-first][data-own="false"]', '[data-first][data-own="true"]')
    assert bubbles[0] > bubbles[1]
    line = await left_of('[aria-label="Attach files"]', "textarea", '[aria-label="Emoji"]')
    assert len(line) == 3 and line == sorted(line, reverse=True)
    isolated = page.get_by_role("main").get_by_role("heading", level=1).locator("bdi")
    await expect(isolated).to_have_text(name)
    note = page.get_by_role("log").locator("bdi").filter(has_text=ben).first
    await expect(note).to_be_visible()

    await alice.messages("Mine").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("menuitem", name="Reply")).to_be_visible()
    await check_page(page)
    await check_width(page)
    await page.keyboard.press("Escape")
    await page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    arrow = page.get_by_role("button", name="Back").locator("svg")
    await expect(arrow).to_have_css("scale", "-1 1")
    await check_width(page)
    await alice.check_is_clean()
