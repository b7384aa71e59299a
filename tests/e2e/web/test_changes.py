"""Messages that are edited, deleted, reacted to or expire in the web client."""

from __future__ import annotations

from playwright.async_api import Locator, expect

from tests.e2e.web.client_support import Visit, Visitor
from tests.e2e.web.stack_support import PHONE, WebStack

GONE = "Message deleted"


def reaction(person: Visitor, text: str, label: str) -> Locator:
    return person.messages(text).get_by_role("button").filter(has_text=label)


async def test_changes_are_seen_by_both_and_after_a_reload(web: WebStack, visit: Visit) -> None:
    """Both users see an edit, a deletion and a reaction; the draft returns after an edit."""
    ann, ben = web.new_users(2)
    alice, bob = await visit(ann), await visit(ben, PHONE)
    await alice.start_chat(ben)
    await alice.send("Are you coming?", "A mistake", "See you there.")
    await bob.open_chat(ann)
    await expect(alice.mark("See you there", "Read")).to_be_visible()

    await alice.field.fill("half a draft")
    await alice.choose("Are you coming?", "Edit")
    await expect(alice.field).to_have_value("Are you coming?")
    await alice.field.press("Escape")
    await expect(alice.field).to_have_value("half a draft")
    await alice.choose("Are you coming?", "Edit")
    await alice.field.fill("Are you coming at eight?")
    await alice.field.press("Enter")
    await expect(alice.field).to_have_value("half a draft")
    await alice.choose("A mistake", "Delete")
    await alice.page.get_by_role("button", name="Delete for everyone").click()
    await bob.choose("at eight", "React with 👍")

    for is_reloaded in (False, True):
        for person, pressed in ((alice, "false"), (bob, "true")):
            if is_reloaded:
                await person.page.reload()
            await person.expect_texts("Are you coming at eight?", GONE, "See you there.")
            await expect(person.messages("at eight")).to_contain_text("edited")
            chip = reaction(person, "at eight", "👍 1")
            await expect(chip).to_have_attribute("aria-pressed", pressed)
    for person in (alice, bob):
        await person.check_is_clean()


async def test_changes_by_others_are_not_unread_and_expired_messages_disappear(
    web: WebStack, visit: Visit
) -> None:
    """Only messages count as unread. A message deleted for oneself remains for others."""
    ann, ben = web.new_users(2)
    alice = await visit(ann)
    await alice.start_chat(ben)
    await alice.send("One", "Two")
    await expect(alice.mark("Two", "Sent")).to_be_visible()
    await alice.leave_window()
    async with web.stack.chat_of(ben) as bob:
        chat = await bob.open_direct(ann)
        await bob.request("react", chat=chat, seq=1, ref="r1", emoji="😂")

        await expect(reaction(alice, "One", "😂 1")).to_be_visible()
        await expect(alice.row(ben)).not_to_contain_text("unread")
        await expect(alice.row(ben)).to_contain_text("Two")
        await alice.return_to_window()
        await reaction(alice, "One", "😂 1").click()
        await expect(reaction(alice, "One", "😂 2")).to_have_attribute("aria-pressed", "true")
        await reaction(alice, "One", "😂 2").click()
        await expect(reaction(alice, "One", "😂 1")).to_have_attribute("aria-pressed", "false")
        await alice.choose("Two", "Delete")
        await alice.page.get_by_role("button", name="Delete for me").click()
        await alice.expect_texts("One", GONE)

        announced = alice.page.get_by_role("status").filter(has_text="Forget this")
        ack = await bob.send(chat, "Forget this")
        await expect(announced).to_have_count(1)
        await bob.request("delete", chat=chat, seq=ack["seq"], ref="r2")
        await expect(announced).to_have_count(0)
        await bob.send(chat, "Gone soon", expires_s=3)
        await expect(alice.row(ben)).not_to_contain_text("Gone soon")
        await alice.expect_texts("One", GONE, GONE, GONE)

        page = await bob.request("history", chat=chat, limit=10)
        assert [each["body"] for each in page["messages"]][:2] == ["One", "Two"]
        await alice.page.reload()
        await alice.expect_texts("One", GONE, GONE, GONE)
    await alice.check_is_clean()
