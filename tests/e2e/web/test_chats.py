"""Chats in the web client, in Chromium with real servers."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

from playwright.async_api import expect

from tests.e2e.web.client_support import Visit, Visitor
from tests.e2e.web.stack_support import WebStack, record_console


@contextlib.asynccontextmanager
async def typing(person: Visitor) -> AsyncIterator[None]:
    """Type in a window until the block ends."""
    has_ended = asyncio.Event()

    async def write() -> None:
        while not has_ended.is_set():
            await person.field.press_sequentially("Let me th", delay=100)

    async with asyncio.TaskGroup() as group:
        group.create_task(write(), name=f"{person.user} types")
        try:
            yield
        finally:
            has_ended.set()


async def test_two_people_see_what_the_other_does(web: WebStack, visit: Visit) -> None:
    """Delivered, read and typing status, an unknown name, and the same state after a reload."""
    ann, ben = web.new_users(2)
    alice, bob = await visit(ann), await visit(ben)
    await alice.page.get_by_role("button", name="New chat").first.click()
    await alice.page.get_by_role("menuitem", name="New chat").click()
    dialog = alice.page.get_by_role("dialog")
    for wrong, words in {
        "nobody-at-all": "There is no user",
        ann: "This is your own username.",
    }.items():
        await dialog.get_by_role("textbox").first.fill(wrong)
        await dialog.get_by_role("button", name="Start chat", exact=True).click()
        await expect(dialog).to_contain_text(words)
    await dialog.get_by_role("textbox").first.fill(ben)
    await dialog.get_by_role("button", name="Start chat", exact=True).click()

    await alice.send("Hello, are you there?")
    await expect(alice.mark("are you there", "Delivered")).to_be_visible()
    await expect(bob.row(ann)).to_contain_text("1 unread message")
    await expect(bob.page).to_have_title("(1) tierchat")
    await bob.open_chat(ann)
    await expect(alice.mark("are you there", "Read")).to_be_visible()
    await expect(bob.row(ann)).not_to_contain_text("unread")
    await expect(bob.page).to_have_title("tierchat")

    async with typing(bob):
        await expect(alice.page.get_by_role("status").filter(has_text="typing…")).to_be_visible()
        await expect(alice.row(ben)).to_contain_text("typing…")
    await bob.send("I am.", "What is new?")
    await expect(alice.row(ben)).not_to_contain_text("typing…")
    await expect(bob.mark("What is new", "Read")).to_be_visible()
    await alice.expect_texts("Hello, are you there?", "I am.", "What is new?")

    await alice.field.fill("half a thou")
    await alice.page.reload()
    await expect(alice.page.get_by_role("heading", name=ben)).to_be_visible()
    await alice.expect_texts("Hello, are you there?", "I am.", "What is new?")
    await expect(alice.mark("are you there", "Read")).to_be_visible()
    await expect(alice.field).to_have_value("half a thou")
    await bob.send("Hello?")
    await expect(alice.messages("Hello?")).to_have_count(1)
    for person in (alice, bob):
        await person.check_is_clean()


async def test_group_shows_who_wrote_and_who_has_read(web: WebStack, visit: Visit) -> None:
    """A group has a name and members. Members see the sender; the sender sees all readers."""
    ann, ben, cal = web.new_users(3)
    alice, bob, carol = [await visit(user) for user in (ann, ben, cal)]

    await alice.page.get_by_role("button", name="New chat").first.click()
    await alice.page.get_by_role("menuitem", name="New group").click()
    dialog = alice.page.get_by_role("dialog")
    await dialog.get_by_label("Group name").fill("Weekend plans")
    for user in (ben, cal):
        await dialog.get_by_label("Add a member").fill(user)
        await dialog.get_by_label("Add a member").press("Enter")
    await dialog.get_by_role("button", name="Create group").click()
    await alice.send("Who is coming?")
    await bob.open_chat("Weekend plans")
    await expect(bob.messages("Who is coming?").get_by_role("link", name=ann)).to_be_visible()
    await expect(alice.mark("Who is coming", f"Read by {ben}")).to_be_visible()
    await carol.open_chat("Weekend plans")
    both = re.compile(f"^Read by ({ben} and {cal}|{cal} and {ben})$")
    await expect(alice.mark("Who is coming", both)).to_be_visible()

    await carol.send("Me!")
    await bob.expect_texts("Who is coming?", "Me!")
    await expect(bob.messages("Me!").get_by_role("link", name=cal)).to_be_visible()
    await expect(alice.page.get_by_text("3 members")).to_be_visible()
    for person in (alice, bob, carol):
        await person.check_is_clean()


async def test_unread_messages_are_counted_and_divided(web: WebStack, visit: Visit) -> None:
    """Unread counts are shown at each chat and in the title; a hidden page reads nothing."""
    ann, ben, cal = web.new_users(3)
    alice, bob, carol = [await visit(user) for user in (ann, ben, cal)]
    await bob.start_chat(ann)
    await bob.send("one")
    await alice.open_chat(ben)
    await expect(bob.mark("one", "Read")).to_be_visible()
    await carol.start_chat(ann)
    await carol.send("hello")
    await alice.open_chat(cal)
    await expect(carol.mark("hello", "Read")).to_be_visible()

    await bob.send("two", "three")
    await expect(alice.row(ben)).to_contain_text("2 unread messages")
    await alice.leave_window()
    await carol.send("psst")
    await expect(alice.row(cal)).to_contain_text("1 unread message")
    await expect(alice.page).to_have_title("(3) tierchat")
    await expect(carol.mark("psst", "Delivered")).to_be_visible()
    await expect(alice.messages("psst")).to_contain_text("New messages")

    await alice.return_to_window()
    await expect(alice.row(cal)).not_to_contain_text("unread")
    await expect(carol.mark("psst", "Read")).to_be_visible()
    await alice.open_chat(ben)
    await expect(alice.messages("two")).to_contain_text("New messages")
    await expect(bob.mark("three", "Read")).to_be_visible()
    await alice.send("four")
    await expect(alice.page.get_by_text("New messages")).to_have_count(0)
    await alice.expect_texts("one", "two", "three", "four")
    for person in (alice, bob, carol):
        await person.check_is_clean()


async def test_windows_and_devices_of_one_user_show_the_same(web: WebStack, visit: Visit) -> None:
    """A second window shares the connection and keeps working when the first one closes."""
    ann, ben = web.new_users(2)
    first, device, bob = await visit(ann), await visit(ann), await visit(ben)
    async with first.context.expect_page() as opening:
        await first.page.evaluate("window.open(location.href)")  # this copies the session storage
    second = Visitor(ann, first.url, first.context, await opening.value, [])
    record_console(second.page, second.console_errors)
    await second.wait_for_list()
    await bob.start_chat(ann)
    await bob.send("to all")
    for window in (first, second, device):
        await expect(window.row(ben)).to_contain_text("1 unread message")

    await first.open_chat(ben)
    for window in (second, device):
        await expect(window.row(ben)).not_to_contain_text("unread")
    await second.open_chat(ben)
    await second.send("from the second")
    await device.open_chat(ben)
    await device.send("from the device")
    await expect(bob.messages("from the device")).to_have_count(1)
    await first.page.close()
    await second.send("the first is closed")
    await expect(bob.messages("the first is closed")).to_have_count(1)

    await bob.send("noticed")
    everything = ["to all", "from the second", "from the device", "the first is closed", "noticed"]
    for window in (second, device, bob):
        await window.expect_texts(*everything)
        await expect(window.banner).to_have_count(0)
        await window.check_is_clean()
