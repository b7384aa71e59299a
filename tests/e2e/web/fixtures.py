"""The stack, the browser and the windows of the browser tests, as fixtures.

One stack and one browser serve a whole run; each test uses its own users.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect

from chatserver.dev.binaries import find_binary
from tests.e2e.web.client_support import Visit, open_visits
from tests.e2e.web.stack_support import CHROMIUM_ARGS, PATIENCE_MS, USERS, WebStack, open_web_stack
from tests.support.web_client import build_web_client


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def web(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WebStack]:
    await asyncio.to_thread(build_web_client)
    async with open_web_stack(tmp_path_factory.mktemp("web"), USERS) as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    async with async_playwright() as playwright:
        chromium = str(find_binary("chromium"))
        made = await playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGS)
        yield made
        await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def firefox(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    """Firefox, controlled by WebDriver BiDi."""
    expect.set_options(timeout=PATIENCE_MS)
    program = str(find_binary("firefox-esr"))
    launcher = tmp_path_factory.mktemp("firefox") / "firefox"
    command = [sys.executable, "-m", "tests.support.bidi_relay", program]
    launcher.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    launcher.chmod(0o755)
    async with async_playwright() as playwright:
        made = await playwright.firefox.launch(
            channel="moz-firefox",  # the released browser, not the build of Playwright
            executable_path=launcher,
            firefox_user_prefs={"ui.prefersReducedMotion": 1},
        )
        yield made
        await made.close()


@pytest_asyncio.fixture(loop_scope="session")
async def visit_in_firefox(web: WebStack, firefox: Browser) -> AsyncIterator[Visit]:
    """Open windows of the web client in Firefox: each call opens a separate device."""
    async with open_visits(web, firefox) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def visit(web: WebStack, browser: Browser) -> AsyncIterator[Visit]:
    """Open windows of the web client: each call opens a separate browser profile."""
    async with open_visits(web, browser) as made:
        yield made
