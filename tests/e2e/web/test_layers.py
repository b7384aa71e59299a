"""Layers of the web client: Escape closes the one on top, and nothing else."""

from __future__ import annotations

from playwright.async_api import Locator, expect

from tests.e2e.web.client_support import Visit, Visitor
from tests.e2e.web.pages_support import make_picture, open_caller
from tests.e2e.web.stack_support import PATIENCE_MS, WebStack
from tests.support.servers.processes import eventually

SCROLL_UP = """async (list) => {
  list.scrollTop = 0;
  for (let frame = 0; frame < 3; frame += 1) await new Promise(requestAnimationFrame);
  return list.scrollTop === 0;
}"""


async def open_menu(person: Visitor, text: str) -> None:
    """Open the menu of a message with the keyboard."""
    await person.messages(text).first.focus()
    await person.page.keyboard.press("Enter")


async def close_top(person: Visitor, top: Locator, below: Locator) -> None:
    """Press Escape: the layer on top closes, and the one below stays."""
    await expect(top).to_be_visible()
    await person.page.keyboard.press("Escape")
    await expect(top).to_have_count(0)
    await expect(below).to_be_visible()
    assert "/chats/" in person.page.url


async def test_escape_closes_only_the_layer_on_top(web: WebStack, visit: Visit) -> None:
    """Menus, pickers, dialogs, replies, selections and recordings close before the chat does."""
    ann, ben = web.new_users(2)
    async with open_caller(web, ben) as caller:
        group = await caller.create_group("Layers", ann)
        await caller.send(group, "A message")
    alice = await visit(ann)
    page, keys = alice.page, alice.page.keyboard
    await alice.open_chat("Layers")
    await alice.send("Mine")
    header = page.get_by_role("main").get_by_role("heading", level=1)
    picker = page.get_by_role("dialog", name="Emoji")
    menu = page.get_by_role("menu", name="Message actions")

    await page.get_by_role("button", name="Emoji").click()
    await close_top(alice, picker, header)
    await open_menu(alice, "A message")
    await close_top(alice, menu, header)
    await open_menu(alice, "A message")
    await page.get_by_role("menuitem", name="More reactions").click()
    await close_top(alice, picker, header)
    await page.get_by_role("button", name="Chat actions").click()
    await close_top(alice, page.get_by_role("menu", name="Chat actions"), header)

    for item, bar in (("Reply", "Cancel reply"), ("Edit", "Cancel editing")):
        await alice.choose("Mine", item)
        await close_top(alice, page.get_by_role("button", name=bar), header)
    await alice.choose("Mine", "Reply")
    reply = page.get_by_role("button", name="Cancel reply")
    await alice.field.press_sequentially("@")
    await close_top(alice, page.get_by_role("listbox"), reply)
    await alice.field.fill("")  # else the list opens again with the focus
    await page.get_by_role("button", name="Emoji").click()
    await close_top(alice, picker, reply)
    await close_top(alice, reply, header)

    await alice.choose("Mine", "Select")
    selection = page.get_by_role("toolbar", name="1 selected")
    await selection.get_by_role("button", name="Delete").click()
    await close_top(alice, page.get_by_role("dialog", name="Delete message?"), selection)
    await close_top(alice, selection, header)
    await page.get_by_role("button", name="Record a voice message").click()
    await close_top(alice, page.get_by_role("group", name="Recording"), header)
    await page.keyboard.press("Alt+n")
    await close_top(alice, page.get_by_role("dialog", name="New chat"), header)

    await keys.press("Escape")
    await expect(header).to_have_count(0)
    assert page.url.endswith("/chats")
    await alice.check_is_clean()


async def test_own_messages_and_files_are_shown_after_scrolling_up(
    web: WebStack, visit: Visit
) -> None:
    """The list shows its end after each message that the user sends."""
    ann, ben = web.new_users(2)
    async with open_caller(web, ben) as caller:
        chat = await caller.open_direct(ann)
        for number in range(40):
            await caller.send(chat, f"Line {number}")
    alice = await visit(ann)
    page = alice.page
    await alice.open_chat(ben)
    await expect(alice.messages("Line 0")).to_be_visible()

    async def scroll_up() -> None:
        """Scroll to the start; the list may follow a change of the last message at first."""
        log = page.get_by_role("log")
        await eventually(lambda: log.evaluate(SCROLL_UP), PATIENCE_MS / 1000)

    await scroll_up()
    await alice.send("Typed above")
    await expect(alice.messages("Typed above")).to_be_in_viewport()
    await scroll_up()
    picture = {"name": "green.png", "mimeType": "image/png", "buffer": make_picture("green")}
    await page.locator("input[type=file]").set_input_files(picture)
    await expect(page.get_by_role("button", name="Remove green.png")).to_be_visible()
    await page.get_by_role("button", name="Send").click()
    await expect(page.get_by_role("button", name="Open image green.png")).to_be_in_viewport()
    await scroll_up()
    await page.get_by_role("button", name="Record a voice message").click()
    await expect(page.get_by_role("group", name="Recording")).to_be_visible()
    await page.get_by_role("button", name="Send").click()
    await expect(page.get_by_role("button", name="Play").last).to_be_in_viewport()
    await alice.check_is_clean()
