"""The browser tests' stack, browser and windows, as fixtures.

Import as a plugin: ``pytest_plugins = ["tests.e2e.web_fixtures"]``. One stack and one browser serve
a whole run; each test takes users of its own, so that tests do not meet.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect

from chatserver.dev.binaries import find_binary
from tests.e2e.web_support import (
    CHROMIUM_ARGS,
    PATIENCE_MS,
    USERS,
    WATCH,
    WIDE,
    Arrive,
    Person,
    WebStack,
    listen,
    open_web_stack,
)
from tests.support.web_client import build_web_client


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def web(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WebStack]:
    """The stack of the browser tests, with the client of `/next/`."""
    await asyncio.to_thread(build_web_client)
    async with open_web_stack(tmp_path_factory.mktemp("web"), USERS) as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Chromium."""
    expect.set_options(timeout=PATIENCE_MS)
    async with async_playwright() as playwright:
        chromium = str(find_binary("chromium"))
        made = await playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGS)
        yield made
        await made.close()


@pytest_asyncio.fixture(loop_scope="session")
async def arrive(web: WebStack, browser: Browser) -> AsyncIterator[Arrive]:
    """Open windows: each call is a person who is logged in; `is_far` chats through the link."""
    people: list[Person] = []

    async def open_window(
        user: str,
        size: tuple[int, int] = WIDE,
        *,
        is_far: bool = False,
        enter: Callable[[Person], Awaitable[None]] | None = None,
        **options: Any,
    ) -> Person:
        width, height = size
        context = await browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion="reduce", **options
        )
        context.set_default_timeout(PATIENCE_MS)
        await context.add_init_script(WATCH)
        person = Person(user, context, await context.new_page(), [])
        people.append(person)
        listen(person)
        if enter is None:
            await person.log_in(web.far_url if is_far else web.url)
        else:
            await enter(person)
        return person

    yield open_window
    for person in people:
        await person.context.close()
