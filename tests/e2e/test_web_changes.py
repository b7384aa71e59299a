"""Messages that are edited, deleted and reacted to in the browser, on real servers."""

from __future__ import annotations

import pytest
from playwright.async_api import Locator, expect

from tests.e2e.web_support import PHONE, Arrive, Person, WebStack
from tests.support.rawchat import RawChat

pytest_plugins = ["tests.e2e.web_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")

GONE = "This message was deleted"


def _message(person: Person, text: str) -> Locator:
    return person.page.locator(".message").filter(has_text=text)


async def _open_menu(person: Person, text: str) -> Locator:
    """Open the menu of a message as one does it without a mouse."""
    message = _message(person, text)
    await message.focus()
    await person.page.keyboard.press("Tab")
    more = message.get_by_role("button", name="More")
    await expect(more).to_be_focused()
    await person.page.keyboard.press("Enter")
    menu = person.page.get_by_role("menu", name="Message actions")
    await expect(menu).to_be_visible()
    return menu


async def _choose(person: Person, text: str, role: str, name: str) -> None:
    menu = await _open_menu(person, text)
    await menu.locator(f"[role={role}]").filter(has_text=name).press("Enter")
    await expect(menu).to_be_hidden()


async def _check_changed(person: Person, other: str) -> None:
    """See the chat as it is after all that was changed."""
    await person.expect_bodies("Are you coming at eight?", GONE, "See you there.")
    first = _message(person, "at eight")
    await expect(first.locator(".edited")).to_have_text("edited")
    await expect(first.locator(".chip")).to_have_text("👍1")
    await expect(person.badge(other)).to_have_count(0)


async def test_web_message_changed_by_one_is_changed_for_both_and_after_a_reload(
    web: WebStack, arrive: Arrive
) -> None:
    """An edit, a delete and a reaction are seen at once by both sides, and by who comes later."""
    ann, ben = web.new_users(2)
    alice, bob = await arrive(ann), await arrive(ben, PHONE)
    await alice.start_chat(ben)
    await alice.send("Are you coming?", "A mistake", "See you there.")
    await bob.open_chat(ann)

    await alice.write("half a draft")
    await _choose(alice, "Are you coming?", "menuitem", "Edit")
    await expect(alice.field).to_have_value("Are you coming?")
    await alice.field.press("Escape")
    await expect(alice.field).to_have_value("half a draft")
    await _choose(alice, "Are you coming?", "menuitem", "Edit")
    await alice.write("Are you coming at eight?")
    await alice.field.press("Enter")
    await expect(alice.field).to_have_value("half a draft")
    await _choose(alice, "A mistake", "menuitem", "Delete for everyone")
    dialog = alice.page.get_by_role("dialog", name="Delete for everyone?")
    await dialog.get_by_role("button", name="Delete", exact=True).click()
    await _choose(bob, "at eight", "menuitemcheckbox", "👍")

    for person, other in ((alice, ben), (bob, ann)):
        await _check_changed(person, other)
    pressed = [("true", bob), ("false", alice)]
    for value, person in pressed:
        await expect(person.page.locator(".chip")).to_have_attribute("aria-pressed", value)
    for person, other in ((alice, ben), (bob, ann)):
        await person.page.reload()
        await _check_changed(person, other)
        await person.check_is_clean()


async def test_web_changes_by_others_are_not_unread_and_those_for_oneself_stay_here(
    web: WebStack, arrive: Arrive
) -> None:
    """A chip goes by a click; what one deletes for oneself others keep; only messages count."""
    ann, ben = web.new_users(2)
    alice = await arrive(ann)
    await alice.start_chat(ben)
    await alice.send("One", "Two")
    await expect(alice.mark("Two")).to_have_text("Sent and stored")
    await alice.look_away()
    bob: RawChat = await web.stack.chat_of(ben).start()
    chat = (await bob.ask("open_direct", user=ann))["chat"]["chat"]
    await bob.ask("react", chat=chat, seq=1, ref="r1", emoji="😂")

    await expect(_message(alice, "One").locator(".chip")).to_have_text("😂1")
    await expect(alice.badge(ben)).to_have_count(0)
    await expect(alice.item(ben).locator(".item-text")).to_have_text("Two")
    await alice.look_back()
    await _message(alice, "One").locator(".chip").click()
    await expect(_message(alice, "One").locator(".chip")).to_have_text("😂2")
    await _message(alice, "One").locator(".chip").click()
    await expect(_message(alice, "One").locator(".chip")).to_have_text("😂1")
    await _choose(alice, "Two", "menuitem", "Delete for me")
    await alice.expect_bodies("One", GONE)

    heard = alice.page.get_by_role("log", name="New messages")
    ack = await bob.say(chat, "Forget this")
    await expect(heard).to_contain_text("Forget this")
    await bob.ask("delete", chat=chat, seq=ack["seq"], ref="r2")
    await expect(heard).not_to_contain_text("Forget this")
    await alice.expect_bodies("One", GONE, GONE)

    page = await bob.ask("history", chat=chat, limit=10)
    assert [each["body"] for each in page["messages"]][:2] == ["One", "Two"]
    await alice.page.reload()
    await alice.expect_bodies("One", GONE, GONE)
    await alice.check_is_clean()
    await bob.stop()
