"""Messages and files in the web client, with two users."""

from __future__ import annotations

import asyncio
import io
import re

from PIL import Image
from playwright.async_api import Page, Route, expect

from tests.e2e.web.client_support import Visit
from tests.e2e.web.pages_support import check_page
from tests.e2e.web.stack_support import WebStack
from tests.integration.features.link_previews.support import open_site


async def test_message_actions_work_by_keyboard(web: WebStack, visit: Visit) -> None:
    """Mention, reply, react, edit and delete work without a mouse; the other user sees each."""
    ann, ben = web.new_users(2)
    async with web.stack.chat_of(ben) as owner:
        fields = {"members": [ann], "ref": "group", "name": "Trip"}
        chat = (await owner.request("create_chat", **fields))["chat"]["chat"]
        await owner.send(chat, "Who is in?")
    first, second = await visit(ann), await visit(ben)
    for person in (first, second):
        await person.open_chat("Trip")

    await first.field.press_sequentially(f"Ask **him**: @{ben[:-1]}")
    option = first.page.get_by_role("option").filter(has_text=f"@{ben}")
    await expect(option).to_have_attribute("aria-selected", "true")
    await first.field.press("Tab")
    await expect(first.field).to_have_value(f"Ask **him**: @{ben} ")
    await first.field.press("Enter")
    asked = second.messages("Ask him")
    await expect(asked.get_by_role("link", name=f"@{ben}")).to_have_attribute("data-me", "true")
    await expect(asked.locator("strong")).to_have_text("him")

    await second.messages("Who is in?").focus()
    await second.page.keyboard.press("End")
    await expect(asked).to_be_focused()
    await second.page.keyboard.press("Enter")
    await expect(second.page.get_by_role("menuitem", name="React with 👍")).to_be_focused()
    await second.page.keyboard.press("Enter")
    await expect(first.messages("Ask him").get_by_text("👍 1")).to_be_visible()

    await asked.focus()
    await second.page.keyboard.press("Enter")
    await second.page.get_by_role("menuitem", name="Reply").press("Enter")
    await expect(second.field).to_be_focused()
    await second.send("Count on it")
    await expect(
        first.messages("Count on it").get_by_role("button", name="Ask him")
    ).to_be_visible()

    await first.field.press("ArrowUp")
    await expect(first.page.get_by_text("Editing message")).to_be_visible()
    await first.field.fill("Ask her")
    await first.field.press("Enter")
    await expect(
        second.messages("Ask her").first.get_by_text(re.compile("edited")).last
    ).to_be_visible()

    await first.messages("Ask her").first.focus()
    await first.page.keyboard.press("Enter")
    await first.page.get_by_role("menuitem", name="Delete").press("Enter")
    await first.page.get_by_role("button", name="Delete for everyone").press("Enter")
    await expect(second.messages("Message deleted").first).to_be_visible()
    for person in (first, second):
        await person.check_is_clean()


async def test_pictures_and_files_are_viewed_and_forwarded(web: WebStack, visit: Visit) -> None:
    """Pictures are shown in a gallery with a viewer, other files as rows; both can be forwarded."""
    ann, ben, cy = web.new_users(3)
    async with web.stack.chat_of(ben) as writer:
        for name, members in (
            ("Pictures", [ann]),
            ("Copies", [ann, cy]),
            ("Friends", [ann, cy]),
        ):
            await writer.request("create_chat", members=members, ref=name, name=name)
    person = await visit(ann)
    await person.open_chat("Pictures")
    files = [
        {"name": "red.png", "mimeType": "image/png", "buffer": _picture("red")},
        {"name": "blue.png", "mimeType": "image/png", "buffer": _picture("blue")},
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"some notes"},
    ]
    await person.page.locator("input[type=file]").set_input_files(files)
    await expect(person.page.get_by_role("progressbar")).to_have_count(0)
    await person.send("three files")

    sent = person.messages("three files")
    await expect(
        sent.get_by_role("img", name="Sent").or_(sent.get_by_role("img", name="Delivered"))
    ).to_be_visible()
    await expect(sent.get_by_role("button", name="Download notes.txt")).to_be_visible()
    await sent.get_by_role("button", name="Open image red.png").click()
    viewer = person.page.get_by_role("dialog", name="Media viewer")
    await expect(viewer.get_by_role("img", name="Image: red.png")).to_be_visible()
    await person.page.keyboard.press("ArrowRight")
    await expect(viewer.get_by_role("img", name="Image: blue.png")).to_be_visible()
    await person.page.keyboard.press("Escape")

    await sent.focus()
    await person.page.keyboard.press("Enter")
    await person.page.get_by_role("menuitem", name="Forward").click()
    dialog = person.page.get_by_role("dialog")
    for name in ("Copies", "Friends"):
        await dialog.get_by_role("button", name=name, exact=True).click()
    await dialog.get_by_role("button", name="Forward", exact=True).click()
    await expect(person.page.get_by_text("Forwarded to Copies and Friends")).to_be_visible()
    other = await visit(cy)
    for name in ("Friends", "Copies"):
        await other.open_chat(name)
        copy = other.messages("three files")
        await expect(copy.get_by_role("button", name="Download notes.txt")).to_be_visible()
        await copy.get_by_role("button", name="Open image blue.png").click()
        await expect(other.page.get_by_role("img", name="Image: blue.png")).to_be_visible()
        await other.page.keyboard.press("Escape")
    for each in (person, other):
        await each.check_is_clean()


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


async def test_emoji_code_and_link_previews_are_shown(web: WebStack, visit: Visit) -> None:
    """Emoji can be typed in texts and reactions, code can be copied, and a link has a preview."""
    a, b = web.new_users(2)
    ann, ben = await visit(a), await visit(b)
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
        card = ben.messages("See http").get_by_role(
            "link", name=f"Link to {site.url.removeprefix('http://')}: Tea & cake"
        )
        await expect(card).to_contain_text("How to")
        await expect(card).to_have_attribute("href", f"{site.url}/page")
        assert set(site.paths) == {"/page", "/picture"}
    for person in (ann, ben):
        await person.check_is_clean()


def _picture(color: str) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (120, 80), color).save(content, "png")
    return content.getvalue()


async def test_emoji_picker_takes_letters_while_it_loads_and_passes_axe(
    web: WebStack, visit: Visit
) -> None:
    """Letters typed while the picker loads are in its search; row numbers begin at 1."""
    a, b = web.new_users(2)
    ann = await visit(a, service_workers="block")
    page = ann.page
    await ann.start_chat(b)
    is_typed = asyncio.Event()

    async def hold(route: Route) -> None:
        await is_typed.wait()
        await route.continue_()

    await page.route("**/assets/EmojiPicker-*.js", hold)
    await page.get_by_role("button", name="Emoji").click()
    picker = page.get_by_role("dialog", name="Emoji")
    search = picker.get_by_role("searchbox", name="Search emoji")
    await expect(search).to_be_focused()
    await page.keyboard.type("roc")
    is_typed.set()
    await expect(picker.get_by_role("gridcell", name="Rocket", exact=True)).to_be_visible()
    await expect(search).to_be_focused()
    await page.keyboard.type("ket")
    await expect(search).to_have_value("rocket")
    await search.fill("")
    await expect(picker.get_by_role("row").first).to_have_attribute("aria-rowindex", "1")
    await check_page(page)
    for _ in range(12):
        await page.keyboard.press("ArrowDown")
        await expect(picker.locator("[aria-selected=true]")).to_be_in_viewport()
    await page.keyboard.press("Escape")
    await expect(picker).to_have_count(0)
    await expect(ann.field).to_be_visible()
    await ann.check_is_clean()


async def test_search_in_a_chat_leads_back_to_the_chat(web: WebStack, visit: Visit) -> None:
    """The chat stays open beside the search; Escape and a button go back to it."""
    a, b = web.new_users(2)
    ann = await visit(a)
    page = ann.page
    await ann.start_chat(b)
    await ann.send("Here")
    chat = page.url
    for leave in ("Escape", "button"):
        await page.get_by_role("button", name="Chat actions").click()
        await page.get_by_role("menuitem", name="Search in chat").click()
        await expect(page.get_by_label("Search messages")).to_be_focused()
        await expect(ann.messages("Here")).to_have_count(1)
        if leave == "Escape":
            await page.keyboard.press("Escape")
        else:
            await page.get_by_role("button", name="Back to the chat").click()
        await expect(page).to_have_url(chat)
    await ann.check_is_clean()


async def test_enter_of_an_input_method_sends_nothing(web: WebStack, visit: Visit) -> None:
    """Enter and Escape during a composition belong to the input method."""
    a, b = web.new_users(2)
    ann = await visit(a)
    await ann.start_chat(b)
    await ann.field.fill("こんにちは")
    compose = """(field, key) => {
      for (const fields of [{ isComposing: true }, { keyCode: 229 }]) {
        const init = { key, bubbles: true, cancelable: true, ...fields };
        field.dispatchEvent(new KeyboardEvent("keydown", init));
      }
    }"""

    for key in ("Enter", "Escape"):
        await ann.field.evaluate(compose, key)

    await expect(ann.field).to_have_value("こんにちは")
    await expect(ann.messages("こんにちは")).to_have_count(0)
    await ann.field.press("Enter")
    await expect(ann.messages("こんにちは")).to_have_count(1)
    await ann.check_is_clean()
