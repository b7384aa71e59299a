"""People who chat in the browser: the main job, in real Chromium, on real servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import expect

from tests.e2e.web_support import Arrive, Person, WebStack
from tests.support.rawchat import RawChat
from tests.support.servers.processes import eventually

pytest_plugins = ["tests.e2e.web_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_web_two_people_chat_and_see_how_far_messages_come(
    web: WebStack, arrive: Arrive
) -> None:
    """A message is there at once, is stored, and its sender sees when it was read."""
    ann, ben = web.new_users(2)
    alice, bob = await arrive(ann), await arrive(ben)

    await alice.start_chat(ben)
    await alice.send("Hello, are you there?")

    await expect(alice.mark("are you there")).to_have_text("Sent and stored")
    await expect(bob.badge(ann)).to_have_text("11 unread message")
    await expect(bob.page).to_have_title("(1) chatserver")
    await bob.open_chat(ann)
    await expect(alice.mark("are you there")).to_have_text("Read")
    await expect(bob.badge(ann)).to_have_count(0)

    await bob.send("I am.", "What is new?")
    await alice.expect_bodies("Hello, are you there?", "I am.", "What is new?")
    await expect(bob.mark("What is new")).to_have_text("Read")
    for person in (alice, bob):
        await person.check_is_clean()


@contextlib.asynccontextmanager
async def writing(person: Person) -> AsyncIterator[None]:
    """Let somebody write on, however long it takes until the others have looked."""

    has_seen = asyncio.Event()

    async def write() -> None:
        while not has_seen.is_set():
            await person.field.press_sequentially("Let me th", delay=100)

    async with asyncio.TaskGroup() as group:
        group.create_task(write(), name=f"{person.user} writes")
        try:
            yield
        finally:
            has_seen.set()


async def test_web_typing_is_shown_until_the_message_comes(web: WebStack, arrive: Arrive) -> None:
    """The other side sees that one writes, in the chat and in the list, and sees it end."""
    ann, ben = web.new_users(2)
    alice, bob = await arrive(ann), await arrive(ben)
    await alice.start_chat(ben)
    await bob.start_chat(ann)  # before a message, only the one who opened it has the chat

    async with writing(alice):
        await expect(bob.page.locator(".chat-subtitle")).to_have_text(f"{ann} is typing…")
        await expect(bob.page.locator(".row-typing")).to_be_visible()
        await expect(bob.item(ann).locator(".item-preview")).to_have_text("typing…")
    await alice.send("Thought.")
    await expect(bob.page.locator(".row-typing")).to_have_count(0)
    await bob.expect_bodies("Thought.")


async def test_web_group_reaches_all_members_and_names_who_read(
    web: WebStack, arrive: Arrive
) -> None:
    """A group is made by name and members; each sees who wrote, the writer sees who has read."""
    ann, ben, cal = web.new_users(3)
    alice, bob, carol = await arrive(ann), await arrive(ben), await arrive(cal)

    await alice.page.get_by_role("button", name="New chat").first.click()
    await alice.page.get_by_role("button", name="Group", exact=True).click()
    await alice.page.get_by_label("Group name").fill("Weekend plans")
    people = alice.page.get_by_label("Add members by username")
    await people.press_sequentially(f"{ben} {cal},")
    await alice.page.get_by_role("button", name="Create group").click()
    await alice.send("Who is coming?")
    for person in (bob, carol):
        await person.open_chat("Weekend plans")
        await person.expect_bodies("Who is coming?")
        await expect(person.page.locator(".sender")).to_have_text(ann)

    await expect(alice.mark("Who is coming")).to_have_text(f"Read by {ben} and {cal}")
    await carol.send("Me!")
    await bob.expect_bodies("Who is coming?", "Me!")
    await alice.page.get_by_role("button", name="Members").click()
    await expect(alice.page.get_by_role("dialog", name="Weekend plans · 3 members")).to_be_visible()
    await expect(alice.page.locator(".dialog-members bdi")).to_have_text([ann, ben, cal])


async def test_web_unknown_user_is_named_and_the_dialog_stays(
    web: WebStack, arrive: Arrive
) -> None:
    """A wrong name gets a sentence that says what to do, and a second try."""
    ann, ben = web.new_users(2)
    alice = await arrive(ann)
    await alice.page.get_by_role("button", name="New chat").first.click()
    dialog = alice.page.get_by_role("dialog")
    name, start = dialog.get_by_label("Username"), dialog.get_by_text("Start chat", exact=True)

    for wrong, words in {
        "nobody-at-all": "User “nobody-at-all” not found. Check the spelling",
        "not a name": "Usernames must be 1 to 64 characters",
        ann: "That's you.",
    }.items():
        await name.fill(wrong)
        await start.click()
        await expect(dialog.get_by_role("alert")).to_contain_text(words)

    await name.fill(ben)
    await start.click()
    await expect(alice.title).to_have_text(ben)


async def test_web_unread_messages_are_counted_and_divided_from_the_read_ones(
    web: WebStack, arrive: Arrive
) -> None:
    """Counts stand at each chat and in the title; opening shows where reading goes on."""
    ann, ben, cal = web.new_users(3)
    alice, bob, carol = await arrive(ann), await arrive(ben), await arrive(cal)
    await bob.start_chat(ann)
    await carol.start_chat(ann)
    await bob.send("one")
    await alice.open_chat(ben)
    await alice.expect_bodies("one")

    await alice.start_chat(cal)
    await bob.send("two", "three")
    await expect(alice.badge(ben)).to_have_text("22 unread messages")
    await alice.look_away()
    await carol.send("psst")
    await expect(alice.badge(cal)).to_have_text("11 unread message")
    await expect(alice.page).to_have_title(f"(3) {cal} · chatserver")
    await expect(carol.mark("psst")).to_have_text("Sent and stored")

    await alice.look_back()
    await expect(alice.badge(cal)).to_have_count(0)
    await expect(carol.mark("psst")).to_have_text("Read")
    await alice.open_chat(ben)
    rows = alice.page.locator(".row-unread, .message .body")
    await expect(rows).to_have_text(["one", "New messages", "two", "three"])
    await alice.send("four")
    await expect(alice.page.locator(".row-unread")).to_have_count(0)


async def test_web_reply_shows_what_it_answers(web: WebStack, arrive: Arrive) -> None:
    """A reply carries its question, and a click leads there."""
    ann, ben = web.new_users(2)
    alice, bob = await arrive(ann), await arrive(ben)
    await alice.start_chat(ben)
    await alice.send("Tea or coffee?", "And when?")
    await bob.open_chat(ann)

    question = bob.page.locator(".message").filter(has_text="Tea or coffee?")
    await question.hover()
    await question.get_by_role("button", name="Reply").click()
    await bob.send("Tea, please.")

    quote = alice.page.locator(".message").filter(has_text="Tea, please.").locator(".quote")
    await expect(quote).to_have_text(f"{ann}Tea or coffee?")
    await quote.click()
    await expect(alice.page.locator(".message.is-found .body")).to_have_text("Tea or coffee?")


async def test_web_history_scrolls_back_to_the_beginning_and_keeps_the_place(
    web: WebStack, arrive: Arrive
) -> None:
    """Older pages come in while one scrolls; what one reads does not jump; none is missing."""
    ann, ben = web.new_users(2)
    async with web.stack.chat_of(ann) as writer:
        chat = (await writer.ask("open_direct", user=ben))["chat"]["chat"]
        for number in range(1, 231):
            await writer.say(chat, f"message {number}")
    bob = await arrive(ben)
    await expect(bob.badge(ann)).to_contain_text("230")
    await bob.open_chat(ann)
    await expect(bob.page.locator(".row-beginning, .row-loading")).to_have_count(1)
    await bob.page.get_by_role("button", name="Go to the latest message").click()
    await expect(bob.badge(ann)).to_have_count(0)
    await expect(bob.bodies.last).to_be_in_viewport()
    async with web.stack.chat_of(ben, device="other") as other:
        await eventually(lambda: _has_read_all(other, chat))

    await bob.page.reload()
    await bob.wait_for_list()
    await expect(bob.bodies).to_have_count(50)
    while await bob.page.locator(".row-beginning").count() == 0:
        moved = await bob.page.evaluate(_SCROLL_UP)
        assert abs(moved) <= 2, f"what was read moved by {moved} px"

    await bob.expect_bodies(*(f"message {number}" for number in range(1, 231)))
    await bob.page.get_by_role("button", name="Go to the latest message").click()
    await expect(bob.bodies.last).to_have_text("message 230")
    await expect(bob.bodies.last).to_be_in_viewport()
    await bob.check_is_clean()


async def _has_read_all(device: RawChat, chat: str) -> bool:
    line = (await device.read_list())[chat]
    return bool(line.get("unread", 0) == 0)


# Scrolls to the top, waits until a page has come in before the first message (or the beginning
# is there), and returns how far that message moved on the screen.
_SCROLL_UP = """async () => {
  const timeline = document.querySelector(".timeline");
  timeline.scrollTop = 40;
  const first = document.querySelector(".message");
  const before = first.getBoundingClientRect().top;
  const changed = () => document.querySelector(".message") !== first ||
    document.querySelector(".row-beginning") !== null;
  while (!changed()) await new Promise(requestAnimationFrame);
  return first.getBoundingClientRect().top - before;
}"""


async def test_web_reload_keeps_the_chat_the_messages_and_the_draft(
    web: WebStack, arrive: Arrive
) -> None:
    """After a reload one is where one was: same chat, same marks, the half-written text."""
    ann, ben = web.new_users(2)
    alice, bob = await arrive(ann), await arrive(ben)
    await alice.start_chat(ben)
    await alice.send("first", "second")
    await bob.open_chat(ann)
    await expect(alice.mark("second")).to_have_text("Read")
    await alice.write("half a thou")

    await alice.page.reload()

    await expect(alice.title).to_have_text(ben)
    await alice.expect_bodies("first", "second")
    await expect(alice.mark("second")).to_have_text("Read")
    await expect(alice.field).to_have_value("half a thou")
    await bob.send("third")
    await alice.expect_bodies("first", "second", "third")


async def test_web_same_user_in_two_windows_sees_the_same(web: WebStack, arrive: Arrive) -> None:
    """What is written and read in one window is written and read in the other."""
    ann, ben = web.new_users(2)
    first, second, bob = await arrive(ann), await arrive(ann), await arrive(ben)
    await bob.start_chat(ann)
    await bob.send("to both")
    await expect(second.badge(ben)).to_have_count(1)

    await first.open_chat(ben)
    await expect(second.badge(ben)).to_have_count(0)
    await first.send("from the first")

    await second.open_chat(ben)
    await second.expect_bodies("to both", "from the first")
    await expect(second.banner).to_have_count(0)
