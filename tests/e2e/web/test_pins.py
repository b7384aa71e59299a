"""Pinned messages in the web client."""

from __future__ import annotations

import re

from playwright.async_api import Locator, expect

from tests.e2e.web.client_support import Visit, Visitor
from tests.e2e.web.conversation_support import fill_chat
from tests.e2e.web.pages_support import open_caller
from tests.e2e.web.stack_support import PATIENCE_MS, WebStack

# Scrolls up until all pages are loaded. Returns how far the message in the middle moved on the
# screen each time a page was added above it.
SCROLL_UP = """async (waitMs) => {
  const end = performance.now() + waitMs;
  const list = document.querySelector('[role="log"]');
  const frame = () => new Promise(requestAnimationFrame);
  const middle = list.getBoundingClientRect().top + list.clientHeight / 2;
  const isMiddle = (row) => {
    const { top, bottom } = row.getBoundingClientRect();
    return top <= middle && middle < bottom;
  };
  const isAll = () =>
    list.textContent.includes("the beginning of") || performance.now() > end;
  const moves = [];
  while (!isAll()) {
    list.scrollTop = 300;
    await frame();
    await frame();
    const row = [...list.querySelectorAll("[data-seq]")].find(isMiddle);
    const [top, height] = [row.getBoundingClientRect().top, list.scrollHeight];
    while (list.scrollHeight < height + 1000 && !isAll()) await frame();
    await frame();
    moves.push(row.getBoundingClientRect().top - top);
  }
  return moves;
}"""


def bar(person: Visitor) -> Locator:
    return person.page.get_by_role("button", name=re.compile("^Pinned message"))


async def test_pins_are_shown_to_members_and_changed_by_managers(
    web: WebStack, visit: Visit
) -> None:
    """The owner pins. A member sees the bar and a note but no menu item; changes are shown."""
    ann, ben = web.new_users(2)
    async with web.stack.chat_of(ann, device="phone") as phone:
        fields = {"ref": "g", "members": [ben], "name": "Trip"}
        chat = (await phone.request("create_chat", **fields))["chat"]["chat"]
        await phone.send(chat, "Train at 9:40")
        seq = (await phone.send(chat, "Hotel: 5 Main St"))["seq"]
        alice, bob = await visit(ann), await visit(ben)
        for person in (alice, bob):
            await person.open_chat("Trip")

        await alice.choose("Hotel", "Pin")
        for person in (alice, bob):
            await expect(bar(person)).to_contain_text("Hotel: 5 Main St")
        await expect(bob.page.get_by_text(f"{ann} pinned a message", exact=True)).to_be_visible()
        await bob.messages("Hotel").focus()
        await bob.page.keyboard.press("Enter")
        await expect(bob.page.get_by_role("menuitem", name="Reply")).to_be_visible()
        await expect(bob.page.get_by_role("menuitem", name="Pin", exact=True)).to_have_count(0)
        await bob.page.keyboard.press("Escape")

        await phone.request("edit", chat=chat, seq=seq, ref="e", body="Hotel: 7 Main St")
        await expect(bar(bob)).to_contain_text("Hotel: 7 Main St")
        await alice.choose("Train at", "Pin")
        await expect(bar(bob)).to_contain_text("Pinned message 1 of 2")
        await alice.choose("Train at", "Unpin")
        await expect(bar(bob)).not_to_contain_text("of 2")
        await phone.request("delete", chat=chat, seq=seq, ref="d")
        for person in (alice, bob):
            await expect(bar(person)).to_have_count(0)
            await person.check_is_clean()


async def test_pinned_message_far_above_is_reached_and_scrolling_keeps_the_position(
    web: WebStack, visit: Visit
) -> None:
    """Both users of a direct chat may pin. The bar opens a message that is not loaded."""
    ann, ben = web.new_users(2)
    async with web.stack.chat_of(ann) as writer:
        chat = await writer.open_direct(ben)
        await fill_chat(writer, chat, 330, lambda number: f"message {number:03}")
        async with open_caller(web, ann) as caller:
            await caller.call("PUT", f"/v1/chats/{chat}/pins/1")
        async with web.stack.chat_of(ben, device="phone") as reader:
            await reader.request("mark", chat=chat, read=331)
    bob = await visit(ben)
    await bob.open_chat(ann)
    await expect(bob.messages("message 330")).to_be_in_viewport()
    await expect(bob.messages("message 001")).to_have_count(0)

    await bar(bob).click()
    await expect(bob.messages("message 001")).to_be_in_viewport()
    await bob.page.get_by_role("button", name="Jump to the newest message").click()
    await expect(bob.messages("message 330")).to_be_in_viewport()

    moves = await bob.page.evaluate(SCROLL_UP, PATIENCE_MS)
    assert moves
    assert max(map(abs, moves)) <= 2
    assert await bob.read_all() == [f"message {number:03}" for number in range(1, 331)]
    await bob.check_is_clean()
