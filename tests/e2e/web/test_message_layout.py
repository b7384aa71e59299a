"""The layout of messages: nothing leaves the list, and nothing covers a text."""

from __future__ import annotations

import itertools

from playwright.async_api import Browser, Locator, Page, expect

from chatserver.client import ChatClient
from tests.e2e.web.client_support import Visit
from tests.e2e.web.layout_support import (
    HEIGHT,
    MEASURE_TOOLS,
    REACTIONS,
    SENTENCES,
    TEXTS,
    WIDTHS,
    WORD,
    measure_everywhere,
    send_every_kind,
)
from tests.e2e.web.pages_support import open_page, record_video
from tests.e2e.web.stack_support import PATIENCE_MS, WebStack
from tests.integration.features.link_previews.support import open_site
from tests.support.servers.processes import eventually


def open_client(web: WebStack, user: str) -> ChatClient:
    """Return a client of the Python SDK for a user."""
    token = web.stack.token(user)
    return ChatClient(f"ws://127.0.0.1:{web.stack.port}/", token, api_url=web.url)


async def test_messages_of_every_kind_stay_in_the_list_and_cover_no_text(
    web: WebStack, browser: Browser
) -> None:
    """Own and received messages of every kind, in four widths, light and dark."""
    ann, ben, *others = web.new_users(2 + len(REACTIONS))
    async with open_site() as site, open_page(web, browser, ann) as page:
        video = await record_video(page)
        async with open_client(web, ann) as first, open_client(web, ben) as second:
            chat = (await first.create_chat([ben, *others], name=f"Layout {WORD[:60]}")).id
            own = await send_every_kind(first, chat, video, f"{site.url}/page")
            received = await send_every_kind(second, chat, video, f"{site.url}/page")
            await first.update_chat(chat, name=f"Renamed {WORD[:60]}")
        for user, emoji in zip(others, REACTIONS, strict=True):
            async with open_client(web, user) as member:
                for seqs in (own, received):
                    await member.react(chat, seqs["short"], emoji)
                    await member.react(chat, seqs["unbroken"], emoji)

        await page.goto(f"{web.url}chats/{chat}")
        await expect(page.get_by_text("Renamed longword").last).to_be_visible()
        # The page opens at the first unread message; scrolling before that would be undone.
        await expect(page.get_by_text("New messages", exact=True)).to_be_in_viewport()
        seqs, problems = await measure_everywhere(page)

    assert problems == []
    assert {*own.values(), *received.values()} <= seqs


async def test_unsent_messages_stay_in_the_list_and_cover_no_text(
    web: WebStack, visit: Visit
) -> None:
    """Messages that wait for a connection, and refused ones with their reason and buttons."""
    a, b = web.new_users(2)
    ann = await visit(a, is_far=True)
    async with open_client(web, b) as ben:
        await ann.start_chat(b)
        await ben.block(a)
    texts = [TEXTS[name] for name in ("short", "long", "unbroken", "code")]
    await ann.send(*texts)
    await expect(ann.page.get_by_text("Not sent: ")).to_have_count(len(texts))
    with web.outage():
        await ann.send(*texts, "The last one")
        await expect(ann.mark("The last one", "Sending")).to_be_visible()
        _, problems = await measure_everywhere(ann.page)

    assert problems == []


async def test_tools_of_a_message_stay_in_the_list_and_cover_no_message(
    web: WebStack, browser: Browser
) -> None:
    """The buttons that appear under the pointer are beside the message."""
    ann, ben = web.new_users(2)
    texts = ("Short one", SENTENCES, "Ok", "😂", "End")
    async with open_client(web, ann) as first, open_client(web, ben) as second:
        chat = (await first.create_chat([ben], name="Tools")).id
        for sender, text in itertools.product((first, second), texts):
            await sender.send(chat, text)

    async with open_page(web, browser, ann, f"chats/{chat}") as page:
        rows = (
            page.get_by_role("log")
            .get_by_role("article")
            .filter(has=page.locator("p, [data-count]"))
        )
        await expect(rows).to_have_count(2 * len(texts))
        for width, number in itertools.product(WIDTHS, range(2 * len(texts))):
            await page.set_viewport_size({"width": width, "height": HEIGHT})
            await check_tools(page, rows.nth(number).locator("[data-first]"))


async def check_tools(page: Page, bubble: Locator) -> None:
    """Move the pointer to a message until its tools are shown; check their position.

    The list moves its rows for some time after a change of the window's size.
    """

    async def are_shown() -> bool:
        await page.mouse.move(0, 0)
        await bubble.hover()
        problems = await page.evaluate(MEASURE_TOOLS)
        assert not problems, problems
        return problems is not None

    await eventually(are_shown, PATIENCE_MS / 1000, "the tools are shown")
