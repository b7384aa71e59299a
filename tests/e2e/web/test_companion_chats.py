"""Chats with an AI companion in the web client: responses, sessions and memory."""

from __future__ import annotations

import re

from playwright.async_api import Locator, expect

from tests.e2e.web.client_support import Visit, Visitor
from tests.e2e.web.stack_support import PHONE, WebStack
from tests.integration.features.companions.support import make_companion

LONG = "story:400"  # takes minutes unless it is stopped


async def start_session(person: Visitor, name: str) -> None:
    await person.page.get_by_role("link", name="Companions").click()
    button = re.compile(f"^(Chat|Continue): {name}$")
    await person.page.get_by_role("button", name=button).click()
    await expect(person.field).to_be_visible()


async def choose(person: Visitor, action: str) -> None:
    await person.page.get_by_role("button", name="Chat actions").click()
    await person.page.get_by_role("menuitem", name=action, exact=True).click()


def response_of(person: Visitor, name: str) -> Locator:
    return person.page.get_by_role("article", name=f"{name} is responding")


async def count_words(response: Locator) -> int:
    """Return the number of words of a response, and check their order."""
    numbers = [int(number) for number in re.findall(r"word(\d+)", await response.inner_text())]
    assert numbers == list(range(1, len(numbers) + 1))
    return len(numbers)


async def test_response_in_two_windows_survives_a_reload_and_is_stopped(
    web: WebStack, visit: Visit
) -> None:
    """A second window joins during the response. The text until the stop is one message in both."""
    (ann,) = web.new_users(1)
    await make_companion(web.stack, "ai-new-tale", "Storyteller", LONG)
    first, second = await visit(ann), await visit(ann, PHONE, is_logged_in=False)
    await start_session(first, "Storyteller")
    await first.send("Tell me a story.")
    response = response_of(first, "Storyteller")
    await expect(response).to_contain_text("word5 ")
    seen = await count_words(response)

    await first.page.reload()
    await expect(response).to_contain_text(f"word{seen} ")
    again = await count_words(response)
    await expect(response).to_contain_text(f"word{again + 5} ")
    await second.log_in()
    await second.open_chat("Storyteller")
    joined = response_of(second, "Storyteller")
    await expect(joined).to_contain_text(f"word{again} ")
    assert await count_words(joined) >= again
    await joined.get_by_role("button", name="Stop").click()

    texts = []
    for person in (first, second):
        await expect(response_of(person, "Storyteller")).to_have_count(0)
        stopped = person.messages("word1 ")
        await expect(stopped).to_have_count(1)
        await expect(stopped).to_contain_text("stopped")
        await expect(person.messages("Tell me a story.")).to_have_count(1)
        texts.append(await stopped.inner_text())
        await person.check_is_clean()
    assert texts[0] == texts[1]
    assert "word400" not in texts[0]


async def test_session_is_ended_and_new_ones_started(web: WebStack, visit: Visit) -> None:
    """On a phone, an ended session is read-only, and the next one is empty."""
    (ann,) = web.new_users(1)
    await make_companion(web.stack, "ai-new-mirror", "Mirror Two", "echo")
    alice = await visit(ann, PHONE)
    await start_session(alice, "Mirror Two")
    await alice.send("one two")
    await expect(alice.messages("You said: one two")).to_have_count(1)
    await alice.page.get_by_role("button", name="Back").click()
    await start_session(alice, "Mirror Two")
    await expect(alice.messages("You said: one two")).to_have_count(1)

    dialog = alice.page.get_by_role("dialog")
    await choose(alice, "End session")
    await dialog.get_by_role("button", name="Cancel").click()
    await expect(alice.field).to_be_visible()
    await choose(alice, "End session")
    await dialog.get_by_role("button", name="End session").click()
    await expect(alice.page.get_by_text("This session has ended.")).to_be_visible()
    await expect(alice.field).to_have_count(0)
    await expect(alice.messages("You said: one two")).to_have_count(1)

    await alice.page.get_by_role("button", name="Start a new session").click()
    await expect(alice.field).to_be_visible()
    await expect(alice.messages("one two")).to_have_count(0)
    await alice.send("three")
    await expect(alice.messages("You said: three")).to_have_count(1)
    await choose(alice, "New session")
    await dialog.get_by_role("button", name="New session").click()
    await expect(alice.messages("three")).to_have_count(0)
    await expect(alice.field).to_be_visible()
    await alice.page.get_by_role("button", name="Back").click()
    await expect(alice.row("Mirror Two")).to_have_count(3)
    await alice.check_is_clean()


async def test_memory_is_shown_deleted_and_turned_off(web: WebStack, visit: Visit) -> None:
    """The next session lists the companion's memories, and the user deletes some of them."""
    (ann,) = web.new_users(1)
    await make_companion(web.stack, "ai-new-elephant", "Elephant Two", "memory")
    alice = await visit(ann)
    await start_session(alice, "Elephant Two")
    await alice.send("Lin")
    await expect(alice.page.get_by_role("log").get_by_role("article")).to_have_count(2)
    await choose(alice, "New session")
    await alice.page.get_by_role("dialog").get_by_role("button", name="New session").click()
    await expect(alice.messages("Lin")).to_have_count(0)

    dialog = alice.page.get_by_role("dialog", name="What Elephant Two remembers")
    items = dialog.get_by_role("listitem")
    remember = dialog.get_by_role("switch")

    async def open_memory() -> int:
        await choose(alice, "Memory")
        await expect(remember).to_be_visible()
        return await items.count()

    while await open_memory() == 0:  # wait until the session has been read
        await dialog.get_by_role("button", name="Close").click()
    await expect(items).to_have_count(2)
    await dialog.get_by_role("button", name="Forget: The user wrote: Lin").click()
    await expect(items).to_have_count(1)
    await expect(items).to_contain_text("Earlier session")
    await remember.uncheck()
    await expect(dialog).to_contain_text("Memory is off")
    await dialog.get_by_role("button", name="Forget everything").click()
    sure = alice.page.get_by_role("dialog", name="Forget everything?")
    await sure.get_by_role("button", name="Forget everything").click()
    await expect(dialog).to_contain_text("Nothing yet.")
    await dialog.get_by_role("button", name="Close").click()

    assert await open_memory() == 0
    await expect(remember).not_to_be_checked()
    await alice.check_is_clean()
