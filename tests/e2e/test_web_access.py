"""The browser client without a mouse, on a phone, for a screen reader, in the dark."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from tests.e2e.web_support import PHONE, Arrive, WebStack

pytest_plugins = ["tests.e2e.web_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_web_keyboard_alone_starts_finds_and_answers_chats(
    web: WebStack, arrive: Arrive
) -> None:
    """Everything can be done without a mouse, and the focus is always somewhere sensible."""
    ann, ben, cal = web.new_users(3)
    alice, bob = await arrive(ann), await arrive(ben)
    keys = alice.page.keyboard

    for other in (ben, cal):
        await keys.press("Alt+n")
        await keys.type(other)
        await keys.press("Enter")
        await expect(alice.title).to_have_text(other)
        await expect(alice.field).to_be_focused()
        await keys.type(f"Hello {other}")
        await keys.press("Shift+Enter")
        await keys.type("from the keyboard")
        await keys.press("Enter")
        await alice.expect_bodies(f"Hello {other}\nfrom the keyboard")

    await keys.press("Alt+ArrowDown")
    await expect(alice.title).to_have_text(ben)
    await keys.press("Control+k")
    await keys.type(cal)
    await keys.press("ArrowDown")
    await keys.press("Enter")
    await expect(alice.title).to_have_text(cal)
    await keys.press("Escape")
    await expect(alice.page.locator(".empty-pane")).to_be_visible()
    await expect(alice.item(cal)).to_be_focused()

    await bob.open_chat(ann)
    await bob.timeline.focus()
    await bob.page.keyboard.press("ArrowUp")
    await expect(bob.page.locator(".message").last).to_be_focused()
    await bob.page.keyboard.press("r")
    await bob.page.keyboard.type("Answered")
    await bob.page.keyboard.press("Enter")
    await expect(bob.page.locator(".message .quote")).to_contain_text(f"Hello {ben}")


async def test_web_help_lists_the_shortcuts_and_gives_the_focus_back(
    web: WebStack, arrive: Arrive
) -> None:
    """A question mark opens the list of keys, Escape closes it."""
    alice = await arrive(web.new_users(1)[0])
    search = alice.page.get_by_label("Search chats and messages")

    await alice.page.keyboard.press("?")
    await expect(alice.page.get_by_role("dialog")).to_contain_text("Go to the latest message")
    await alice.page.keyboard.press("Escape")
    await expect(alice.page.get_by_role("dialog")).to_have_count(0)
    await alice.page.keyboard.press("/")
    await expect(search).to_be_focused()
    await alice.page.keyboard.type("?")
    await expect(search).to_have_value("?")


async def test_web_phone_shows_one_screen_at_a_time(web: WebStack, arrive: Arrive) -> None:
    """At 360 pixels the list and the chat are two screens, and nothing sticks out."""
    ann, ben = web.new_users(2)
    alice, bob = await arrive(ann, PHONE), await arrive(ben)
    page = alice.page
    sidebar, pane = page.get_by_role("navigation", name="Chats"), page.locator(".chat-pane")
    await bob.start_chat(ann)
    await bob.send("x" * 300, "https://chat.example/" + "y" * 300, "two words")

    await expect(alice.badge(ben)).to_have_text("33 unread messages")
    await _check_nothing_sticks_out(page)
    await alice.open_chat(ben)
    await expect(sidebar).to_be_hidden()
    await expect(pane).to_be_visible()
    await alice.send("z" * 300)
    await expect(bob.bodies).to_have_count(4)
    await _check_nothing_sticks_out(page)

    await page.get_by_role("button", name="Back to chats").click()
    await expect(sidebar).to_be_visible()
    await expect(pane).to_be_hidden()
    await alice.open_chat(ben)
    await page.go_back()
    await expect(sidebar).to_be_visible()
    for dialog in ("New chat", "Account menu"):
        await page.get_by_role("button", name=dialog).first.click()
        await _check_nothing_sticks_out(page)
        await page.keyboard.press("Escape")


async def _check_nothing_sticks_out(page: Page) -> None:
    wide = await page.evaluate(
        """() => [...document.querySelectorAll(".panes, .bubble, .chat-item, dialog, .menu")]
          .filter((one) => one.getBoundingClientRect().right > innerWidth + 0.5)
          .map((one) => one.className)"""
    )
    assert wide == []
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_web_screen_reader_is_told_names_marks_and_news(
    web: WebStack, arrive: Arrive
) -> None:
    """Landmarks, names and a polite log say what the eye sees."""
    ann, ben = web.new_users(2)
    alice, bob = await arrive(ann), await arrive(ben)
    await alice.start_chat(ben)
    await bob.start_chat(ann)
    await bob.send("Can you hear me?")

    page = alice.page
    await expect(page.get_by_role("log")).to_have_text(f"{ben}: Can you hear me?")  # soon it goes
    await expect(page.get_by_role("navigation", name="Chats")).to_be_visible()
    await expect(page.get_by_role("main", name=f"Chat: {ben}")).to_be_visible()
    await expect(page.get_by_role("region", name=f"Messages with {ben}")).to_be_visible()
    said = page.locator(".message").filter(has_text="Can you hear me?")
    await expect(said).to_have_attribute(
        "aria-label", re.compile(f"^{ben}: Can you hear me.*(Today|Yesterday)")
    )
    nameless = await page.evaluate(
        """() => [...document.querySelectorAll("button, input, textarea")]
          .filter((one) => one.checkVisibility())
          .filter((one) => !(one.getAttribute("aria-label") || one.labels?.length
            || one.textContent.trim()))
          .map((one) => one.outerHTML)"""
    )
    assert nameless == []


async def test_web_theme_is_the_systems_until_one_is_chosen_and_is_remembered(
    web: WebStack, arrive: Arrive
) -> None:
    """Light and dark follow the system; a choice wins and outlives a reload."""
    alice = await arrive(web.new_users(1)[0], color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = await alice.page.evaluate(ground)

    await alice.page.get_by_role("button", name="Account menu").click()
    await alice.page.get_by_role("button", name="Light").click()

    light = await alice.page.evaluate(ground)
    assert light != dark
    await alice.page.reload()
    await alice.wait_for_list()
    assert await alice.page.evaluate(ground) == light


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_web_text_has_the_contrast_that_reading_needs(
    web: WebStack, arrive: Arrive, scheme: str
) -> None:
    """Every text stands out from its ground by 4.5 to 1, in both themes."""
    ann, ben = web.new_users(2)
    alice, bob = await arrive(ann, color_scheme=scheme), await arrive(ben)
    await alice.start_chat(ben)
    await alice.send("mine, with https://chat.example/")
    await bob.open_chat(ann)
    await bob.send("theirs, with https://chat.example/")
    await expect(alice.bodies).to_have_count(2)

    assert await alice.page.evaluate(_WEAK_TEXTS) == []


# Finds visible texts whose colour is too near to the ground behind them (WCAG 1.4.3). Paints both
# on a canvas, since a computed colour may be in any notation.
_WEAK_TEXTS = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (color) => {
    const [r, g, b] = rgba(color).map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (one) => {
    for (let at = one; at !== null; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (rgba(color)[3] === 255) return color;
    }
    return "#fff";
  };
  const weak = [];
  for (const one of document.querySelectorAll("#app *")) {
    const says = [...one.childNodes].some((n) => n.nodeType === 3 && n.data.trim() !== "");
    if (!says || !one.checkVisibility() || one.closest(".sr-only, :disabled")) continue;
    const [a, b] = [light(getComputedStyle(one).color), light(ground(one))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) weak.push(`${one.className}: ${one.textContent.slice(0, 30)}: ${ratio}`);
  }
  return weak;
}"""
