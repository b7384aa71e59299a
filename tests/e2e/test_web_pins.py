"""Pinned messages in the browser, on real servers."""

from __future__ import annotations

import pytest
from playwright.async_api import Locator, expect

from tests.e2e.web_support import Arrive, Person, WebStack
from tests.support.rawchat import RawChat

pytest_plugins = ["tests.e2e.web_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def _open_menu(person: Person, text: str) -> Locator:
    message = person.page.locator(".message").filter(has_text=text)
    await message.hover()
    await message.get_by_role("button", name="More").click()
    return person.page.get_by_role("menu", name="Message actions")


def _bar(person: Person) -> Locator:
    return person.page.get_by_role("region", name="Pinned messages")


async def test_web_pinned_messages_are_shown_to_members_and_changed_by_managers(
    web: WebStack, arrive: Arrive
) -> None:
    """The owner pins in the message menu; a member sees the bar and list, but no menu item."""
    ann, ben = web.new_users(2)
    await web.stack.add_users([ann, ben])
    phone = RawChat(ann, web.stack.port, web.stack.token, device="phone")
    await phone.start()
    made = await phone.ask("create_chat", ref="g", members=[ben], name="Trip")
    chat = made["chat"]["chat"]
    await phone.say(chat, "Train at 9:40")
    for number in range(120):
        await phone.say(chat, f"message {number}")
    seq = (await phone.say(chat, "Hotel: 5 Main St"))["seq"]
    alice, bob = await arrive(ann), await arrive(ben)
    await alice.open_chat("Trip")
    await bob.open_chat("Trip")
    await expect(bob.page.locator(".message").last).to_contain_text("Hotel")

    await (await _open_menu(alice, "Hotel")).get_by_role("menuitem", name="Pin").click()
    await expect(_bar(bob)).to_contain_text("Hotel: 5 Main St")
    await expect(_bar(alice)).to_contain_text("Hotel: 5 Main St")
    told = bob.page.get_by_text(f"{ann} pinned a message", exact=True)
    await expect(told).to_be_visible()
    menu = await _open_menu(bob, "Hotel")
    await expect(menu.get_by_role("menuitem", name="Reply")).to_be_visible()
    await expect(menu.get_by_role("menuitem", name="Pin")).to_have_count(0)
    await bob.page.keyboard.press("Escape")

    await phone.ask("edit", chat=chat, seq=seq, ref="e", body="Hotel: 7 Main St")
    await expect(_bar(bob)).to_contain_text("Hotel: 7 Main St")
    menu = await _open_menu(alice, "message 119")
    await menu.get_by_role("menuitem", name="Pin").click()
    await expect(_bar(bob).get_by_role("button", name="Show 2 pinned messages")).to_be_visible()
    await _bar(alice).get_by_role("button", name="Show 2 pinned messages").click()
    dialog = alice.page.get_by_role("dialog", name="Pinned messages")
    await dialog.get_by_role("button", name="Unpin: message 119").click()
    await expect(dialog.get_by_role("status")).to_have_text("Message unpinned.")
    await dialog.get_by_role("button", name="Close").click()

    await phone.ask("delete", chat=chat, seq=seq, ref="d")
    await expect(_bar(bob)).to_be_hidden()
    await expect(_bar(alice)).to_be_hidden()
    await phone.stop()


async def test_web_pinned_message_that_is_not_loaded_is_loaded_and_shown(
    web: WebStack, arrive: Arrive
) -> None:
    """In a direct chat both may pin; the bar leads to a message far above."""
    ann, ben = web.new_users(2)
    await web.stack.add_users([ann, ben])
    phone = RawChat(ann, web.stack.port, web.stack.token, device="phone")
    await phone.start()
    chat = (await phone.ask("open_direct", user=ben))["chat"]["chat"]
    await phone.say(chat, "the first message")
    alice = await arrive(ann)
    await alice.open_chat(ben)
    await (await _open_menu(alice, "the first")).get_by_role("menuitem", name="Pin").click()
    await expect(_bar(alice)).to_contain_text("the first message")
    for number in range(230):  # more than a page
        await phone.say(chat, f"message {number}")
    bob = await arrive(ben)
    await bob.open_chat(ann)
    first = bob.page.locator(".message").filter(has_text="the first message")
    await expect(first).to_have_count(0)

    await _bar(bob).get_by_role("button", name="Pinned message: the first message").click()

    await expect(first).to_be_in_viewport()
    await expect(first).to_be_focused()
    await phone.stop()
