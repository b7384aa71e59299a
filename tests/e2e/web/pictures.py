"""Screenshots of the web client for `docs/images`.

Run by hand in the repository: .venv/bin/python -m tests.e2e.web.pictures

The screenshots show a real stack with several users.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import tempfile
import time
from pathlib import Path

from playwright.async_api import async_playwright, expect

from chatserver.dev.binaries import find_binary
from tests.e2e.web.client_support import Visit, Visitor, open_visits
from tests.e2e.web.stack_support import ADMIN, CHROMIUM_ARGS, PATIENCE_MS, WebStack, open_web_stack
from tests.integration.features.companions.support import make_companion
from tests.support.rawchat import RawChat

FOLDER = Path("docs/images")
BYTES_MAX = 150_000
PEOPLE = ("alice", "bob", "carol", "dmitri", "emma")
SIZE = (1200, 800)
CHATTING_S = 150  # the period that the charts of the operations page show

# Senders and texts of the chat in the picture.
MESSAGES = [
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
    """Start the stack, send the messages and take the screenshots."""
    expect.set_options(timeout=PATIENCE_MS)
    with tempfile.TemporaryDirectory() as folder:
        async with open_web_stack(Path(folder), PEOPLE) as web, async_playwright() as playwright:
            chromium = str(find_binary("chromium"))
            browser = await playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGS)
            await _send_messages(web)
            async with open_visits(web, browser) as visit:
                await _capture_chat(await _open(visit, "alice"), await _open(visit, "carol"))
                await _capture_companion(web, await _open(visit, "emma"))
                await _capture_operations(web, await _open(visit, ADMIN))
            await browser.close()


async def _send_messages(web: WebStack) -> None:
    people = {name: await web.stack.chat_of(name).start() for name in PEOPLE}
    alice, bob, carol, emma = (people[name] for name in ("alice", "bob", "carol", "emma"))
    await _send_direct(alice, "emma", "Thank you for the train tickets!")
    await _send_direct(emma, "alice", "See you at the station on Friday.")
    await _send_direct(alice, "dmitri", "The invoice went out this morning.")
    group = await _create(carol, "Book club", ["alice", "emma", "dmitri"])
    await carol.send(group, "Chapter nine by Thursday?")
    await emma.send(group, "Only if there is cake.")
    await _send_direct(bob, "alice", "Lunch at one?")
    group = await _create(carol, "Release crew", ["alice", "bob", "dmitri"])
    for name, text in MESSAGES:
        last = await people[name].send(group, text)
    await people[REPLY[0]].send(group, REPLY[1], reply_to=last["seq"])
    for person in people.values():
        await person.stop()


async def _send_direct(person: RawChat, other: str, text: str) -> None:
    answer = await person.request("open_direct", user=other)
    await person.send(answer["chat"]["chat"], text)


async def _create(person: RawChat, name: str, members: list[str]) -> str:
    ref = name.lower().replace(" ", "-")
    return await person.create_group(members, ref=ref, name=name)


async def _capture_chat(alice: Visitor, carol: Visitor) -> None:
    for person in (alice, carol):
        await person.open_chat("Release crew")
    await alice.send("On it!")
    await expect(alice.messages("On it!").get_by_role("img", name="Read")).to_be_visible()
    for scheme in ("light", "dark"):
        await alice.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        await carol.field.press_sequentially("Now")
        await expect(alice.page.get_by_text("carol is typing…").first).to_be_visible()
        await _capture_screenshot(alice, f"web-{scheme}.png")
        await carol.field.fill("")
        await expect(alice.page.get_by_text("carol is typing…")).to_have_count(0)


async def _capture_operations(web: WebStack, admin: Visitor) -> None:
    """Chat at a changing rate, then take a screenshot of the operations page."""
    people = [await web.stack.chat_of(name).start() for name in PEOPLE]
    chats = []
    for one, other in itertools.combinations(range(len(people)), 2):
        answer = await people[one].request("open_direct", user=PEOPLE[other])
        chats.append((people[one], answer["chat"]["chat"]))
    rng = random.Random(7)
    ends = time.monotonic() + CHATTING_S
    while time.monotonic() < ends:
        share = 0.4 + 0.4 * math.sin(time.monotonic() / 9)
        for number, (person, chat) in enumerate(chats):
            if rng.random() < share * (number + 3) / len(chats):
                await person.send(chat, "One more.")
        await asyncio.sleep(rng.random() * 0.1)
    await admin.page.goto(f"{web.url}operations")
    await expect(admin.page.locator("canvas").first).to_be_visible()
    await _capture_screenshot(admin, "web-operations.png")
    for person in people:
        await person.stop()


async def _capture_companion(web: WebStack, emma: Visitor) -> None:
    await make_companion(web.stack, "ai-echo", "Echo", "echo")
    await emma.page.goto(f"{web.url}companions")
    await emma.page.get_by_role("button", name="Chat: Echo").click()
    for question in ("Good morning, Echo!", "Which model are you?"):
        await emma.send(question)
        await expect(emma.messages(f"You said: {question}")).to_be_visible()
    await emma.send(ASKED)
    answer = emma.page.locator("[aria-busy=true]").filter(has_text="word by word")
    await expect(answer).to_be_visible()
    await _capture_screenshot(emma, "web-companion.png")


async def _capture_screenshot(person: Visitor, name: str) -> None:
    picture = FOLDER / name
    await person.page.screenshot(path=picture, animations="disabled")
    assert picture.stat().st_size < BYTES_MAX, f"{picture} is too large"


async def _open(visit: Visit, user: str) -> Visitor:
    return await visit(user, SIZE, color_scheme="light", locale="en-GB")


if __name__ == "__main__":
    asyncio.run(main())
