"""Chatting with an AI companion in the browser: answers as they arrive, stop, reload, sessions."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Locator, expect

from tests.e2e.web_support import PHONE, Arrive, Person, WebStack
from tests.integration.features.companions.support import make_companion

pytest_plugins = ["tests.e2e.web_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG = "story:400"  # minutes, unless somebody stops it


async def begin(person: Person, name: str) -> None:
    """Choose a companion in the dialog of a new chat."""
    await person.page.get_by_role("button", name="New chat").first.click()
    await person.page.get_by_role("button", name="Companion", exact=True).click()
    await person.page.get_by_role("button", name=f"{name}, AI companion").click()
    await expect(person.title).to_have_text(name)


def answer_of(person: Person) -> Locator:
    """The answer that is being made."""
    return person.page.locator(".row-answer")


async def words_of(person: Person) -> int:
    """Return how many words of the answer are there."""
    text = await answer_of(person).locator(".body").text_content()
    words = (text or "").split()
    assert words == [f"word{number}" for number in range(1, len(words) + 1)]
    return len(words)


async def expect_word(person: Person, number: int) -> None:
    """Wait until the answer has come so far."""
    await expect(answer_of(person)).to_contain_text(f"word{number} ")


async def test_web_answer_arrives_word_by_word_outlives_a_reload_and_is_stopped(
    web: WebStack, arrive: Arrive
) -> None:
    """The page goes on where it was; what was said until the stop is the message."""
    (ann,) = web.new_users(1)
    await make_companion(web.stack, "ai-tale", "Tale", LONG)
    alice = await arrive(ann)
    await begin(alice, "Tale")

    await alice.send("Tell me a story.")
    await expect_word(alice, 5)
    seen = await words_of(alice)
    await alice.page.reload()
    await alice.wait_for_list()
    await expect_word(alice, seen)
    again = await words_of(alice)
    await expect_word(alice, again + 5)
    await expect(alice.title).to_have_text("Tale")
    await answer_of(alice).get_by_role("button", name="Stop").click()

    await expect(answer_of(alice)).to_have_count(0)
    said = alice.page.locator(".message:not(.is-own) .body")
    await expect(said).to_have_count(1)
    await expect(said).to_have_text(re.compile(r"^word1 word2 .*word\d+\s*$"))
    await expect(alice.page.locator(".message:not(.is-own) .foot")).to_contain_text("stopped")
    assert "word400" not in (await said.text_content() or "")
    await alice.check_is_clean()


async def test_web_second_window_joins_in_the_middle_and_both_see_one_answer(
    web: WebStack, arrive: Arrive
) -> None:
    """From its beginning; it stops the answer, and both have the same message and no more."""
    (ann,) = web.new_users(1)
    await make_companion(web.stack, "ai-pair", "Pair", LONG)
    first = await arrive(ann)
    await begin(first, "Pair")
    await first.send("Go on.")
    await expect_word(first, 5)

    second = await arrive(ann)
    await second.open_chat("Pair")
    await expect_word(second, 10)
    assert await words_of(second) >= 10
    await answer_of(second).get_by_role("button", name="Stop").click()

    texts = []
    for person in (first, second):
        await expect(answer_of(person)).to_have_count(0)
        await expect(person.bodies).to_have_count(2)
        texts.append(await person.bodies.all_text_contents())
        await person.check_is_clean()
    assert texts[0] == texts[1]
    assert texts[0][0] == "Go on." and texts[0][1].startswith("word1 word2 ")


async def test_web_session_is_ended_and_begun_anew(web: WebStack, arrive: Arrive) -> None:
    """On a phone: what has ended is read and not written to; the new one is empty."""
    (ann,) = web.new_users(1)
    await make_companion(web.stack, "ai-echo-web", "Mirror", "echo")
    alice = await arrive(ann, PHONE)
    await begin(alice, "Mirror")
    await alice.send("one two")
    await alice.expect_bodies("one two", "You said: one two")

    end = alice.page.get_by_role("button", name="End this session", exact=True)
    asked = alice.page.get_by_role("dialog", name="End this session?")
    await end.click()
    await asked.get_by_role("button", name="Cancel").click()
    await expect(alice.field).to_be_visible()
    await end.click()
    await asked.get_by_role("button", name="End session").click()
    await expect(alice.page.locator(".session-over")).to_contain_text("This session has ended")
    await expect(alice.field).to_be_hidden()
    await alice.expect_bodies("one two", "You said: one two")

    await alice.page.get_by_role("button", name="Start a new session").click()
    await expect(alice.field).to_be_visible()
    await expect(alice.bodies).to_have_count(0)
    await alice.send("three")
    await alice.expect_bodies("three", "You said: three")

    await alice.page.get_by_role("button", name="New session").click()
    await expect(alice.bodies).to_have_count(0)
    await alice.page.get_by_role("button", name="Back to chats").click()
    await expect(alice.item("Mirror")).to_have_count(3)
    await alice.check_is_clean()


async def test_web_companion_that_is_begun_twice_is_the_same_session(
    web: WebStack, arrive: Arrive
) -> None:
    """Who chooses a companion with whom a session is active comes to it."""
    (ann,) = web.new_users(1)
    await make_companion(web.stack, "ai-twice", "Twice", "echo")
    alice = await arrive(ann)
    await begin(alice, "Twice")
    await alice.send("hello")
    await alice.expect_bodies("hello", "You said: hello")

    await begin(alice, "Twice")

    await alice.expect_bodies("hello", "You said: hello")
    await expect(alice.item("Twice")).to_have_count(1)


async def test_web_memory_is_shown_deleted_and_switched_off(web: WebStack, arrive: Arrive) -> None:
    """What a companion learned is listed in the next session; the user decides what stays."""
    (ann,) = web.new_users(1)
    await make_companion(web.stack, "ai-elephant", "Elephant", "memory")
    alice = await arrive(ann)
    await begin(alice, "Elephant")
    await alice.send("Lin")
    await expect(alice.bodies).to_have_count(2)
    await alice.page.get_by_role("button", name="New session", exact=True).click()
    await expect(alice.bodies).to_have_count(0)

    dialog = alice.page.get_by_role("dialog", name="What Elephant remembers")
    items = dialog.get_by_role("listitem")
    loaded = dialog.get_by_role("checkbox")

    async def open_memory() -> int:
        await alice.page.get_by_role("button", name="Memory", exact=True).click()
        await expect(loaded).to_be_visible()
        return await items.count()

    while await open_memory() == 0:  # until the session was read; the test has a deadline
        await dialog.get_by_role("button", name="Close").click()
    await expect(items).to_have_count(2)
    await dialog.get_by_role("button", name="Forget: The user wrote: Lin").click()
    await expect(items).to_have_count(1)
    await expect(items).to_contain_text("Earlier session")
    await loaded.uncheck()
    await expect(dialog).to_contain_text("Remembering is off")
    await dialog.get_by_role("button", name="Forget everything").click()
    await expect(dialog).to_contain_text("Nothing yet")
    await dialog.get_by_role("button", name="Close").click()

    assert await open_memory() == 0
    await expect(loaded).not_to_be_checked()
    await alice.check_is_clean()
