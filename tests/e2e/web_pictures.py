"""Takes the pictures of the web client in `docs/images`. Run by hand, from the repository:

    .venv/bin/python -m tests.e2e.web_pictures

A real stack, two real windows, a conversation; nothing in the picture is drawn.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import tempfile
import time
from pathlib import Path

from playwright.async_api import Browser, async_playwright, expect

from chatserver.dev.binaries import find_binary
from tests.e2e.web_support import ADMIN, CHROMIUM_ARGS, Person, WebStack, open_web_stack
from tests.integration.features.companions.support import make_companion
from tests.support.rawchat import RawChat

FOLDER = Path("docs/images")
BYTES_MAX = 250_000
PEOPLE = ("alice", "bob", "carol", "dmitri", "emma")
SIZE = (1200, 800)
CHATTING_S = 150  # so long a past has the picture of the admin page

# Who says what, in the chat that is open in the picture.
TALK = [
    ("carol", "Release candidate is tagged. Two gateways, three workers, all green."),
    ("bob", "I pulled the plug on one of them while four hundred people were writing."),
    ("bob", "Nobody noticed. Every message is there once, and in order."),
    ("alice", "That is the nicest thing you have said about my code."),
    ("carol", "Notes are here: https://wiki.example/releases/1.0"),
    ("carol", "Could somebody read the part about history? I am unsure about the page size."),
    ("alice", "Reading it on the train. Fifty at a time feels right: the place you were reading "
              "stays where it was while older messages come in."),
]  # fmt: skip
ASKED = (
    "Tell me what comes in while you speak: an answer that arrives word by word, and a button "
    "that ends it."
)
REPLY = ("bob", "Agreed. Ship it.")


async def main() -> None:
    """Start everything, talk, take a picture in the light, one in the dark, one of an answer."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_web_stack(Path(folder), PEOPLE) as web, async_playwright() as playwright:
            chromium = str(find_binary("chromium"))
            browser = await playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGS)
            await _talk(web)
            await _take(web, browser)
            await _take_operations(web, browser)
            await _take_companion(web, browser)
            await browser.close()


async def _talk(web: WebStack) -> None:
    people = {name: await web.stack.chat_of(name).start() for name in PEOPLE}
    alice, bob, carol, emma = (people[name] for name in ("alice", "bob", "carol", "emma"))
    await _say_directly(alice, "emma", "Thank you for the train tickets!")
    await _say_directly(emma, "alice", "See you at the station on Friday.")
    await _say_directly(alice, "dmitri", "The invoice went out this morning.")
    group = await _create(carol, "Book club", ["alice", "emma", "dmitri"])
    await carol.say(group, "Chapter nine by Thursday?")
    await emma.say(group, "Only if there is cake.")
    await _say_directly(bob, "alice", "Lunch at one?")
    group = await _create(carol, "Release crew", ["alice", "bob", "dmitri"])
    for name, text in TALK:
        last = await people[name].say(group, text)
    await people[REPLY[0]].say(group, REPLY[1], reply_to=last["seq"])
    for person in people.values():
        await person.stop()


async def _say_directly(person: RawChat, other: str, text: str) -> None:
    answer = await person.ask("open_direct", user=other)
    await person.say(answer["chat"]["chat"], text)


async def _create(person: RawChat, name: str, members: list[str]) -> str:
    ref = name.lower().replace(" ", "-")
    answer = await person.ask("create_chat", ref=ref, members=members, name=name)
    chat: str = answer["chat"]["chat"]
    return chat


async def _take(web: WebStack, browser: Browser) -> None:
    carol, alice = await _open(web, browser, "carol"), await _open(web, browser, "alice")
    for person in (alice, carol):
        await person.open_chat("Release crew")
    await alice.send("On it!")
    await expect(alice.mark("On it!")).to_have_text("Read by carol")
    for scheme in ("light", "dark"):
        await alice.page.emulate_media(color_scheme=scheme)
        await carol.field.press_sequentially("Now")
        await expect(alice.page.locator(".row-typing")).to_be_in_viewport()
        await _shoot(alice, f"web-{scheme}.png")
        await carol.write("")
        await expect(alice.page.locator(".row-typing")).to_have_count(0)
    for person in (alice, carol):
        await person.context.close()


async def _take_operations(web: WebStack, browser: Browser) -> None:
    """Chat for a while, more and less, then take the admin page."""
    people = [await web.stack.chat_of(name).start() for name in PEOPLE]
    chats = []
    for one, other in itertools.combinations(range(len(people)), 2):
        answer = await people[one].ask("open_direct", user=PEOPLE[other])
        chats.append((people[one], answer["chat"]["chat"]))
    rng = random.Random(7)
    ends = time.monotonic() + CHATTING_S
    while time.monotonic() < ends:
        share = 0.4 + 0.4 * math.sin(time.monotonic() / 9)
        for number, (person, chat) in enumerate(chats):
            if rng.random() < share * (number + 3) / len(chats):
                await person.say(chat, "One more.")
        await asyncio.sleep(rng.random() * 0.1)
    admin = await _open(web, browser, ADMIN)
    await admin.page.goto(f"{web.url}#/admin")
    await expect(admin.page.locator(".chart-line").first).to_be_visible()
    await _shoot(admin, "web-admin.png")
    await admin.context.close()
    for person in people:
        await person.stop()


async def _take_companion(web: WebStack, browser: Browser) -> None:
    await make_companion(web.stack, "ai-echo", "Echo", "echo")
    emma = await _open(web, browser, "emma")
    await emma.page.get_by_role("button", name="New chat").first.click()
    await emma.page.get_by_role("button", name="Companion", exact=True).click()
    await emma.page.get_by_role("button", name="Echo, AI companion").click()
    await expect(emma.title).to_have_text("Echo")
    for question in ("Good morning, Echo!", "Which model are you?"):
        await emma.send(question)
        await expect(emma.bodies.last).to_have_text(f"You said: {question}")
    await emma.send(ASKED)
    answer = emma.page.locator(".row-answer")
    await expect(answer.locator(".body")).to_contain_text("word by word")
    await _shoot(emma, "web-companion.png")
    await emma.context.close()


async def _shoot(person: Person, name: str) -> None:
    picture = FOLDER / name
    await person.page.screenshot(path=picture, animations="disabled")
    assert picture.stat().st_size < BYTES_MAX, f"{picture} is too large"


async def _open(web: WebStack, browser: Browser, user: str) -> Person:
    width, height = SIZE
    context = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="light", locale="en-GB"
    )
    person = Person(user, context, await context.new_page(), [])
    await person.log_in(web.url)
    return person


if __name__ == "__main__":
    asyncio.run(main())
