"""The React tutorial of clients/typescript, carried out in an empty folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from tests.e2e.reference.support import PASSWORD
from tests.support.deadlines import wait_for_exit
from tests.support.devrun import DEADLINE_S, DevRun, dev_run
from tests.support.npm_registry import open_registry
from tests.support.typescript import PACKAGE, build, node, run

pytestmark = pytest.mark.asyncio(loop_scope="session")

TUTORIAL = PACKAGE / "docs" / "react-tutorial.md"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
NAMES = re.compile(r"`([\w.]+\.(?:html|mjs|jsx|css))`")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevRun]:
    """A running `chatserver dev`."""
    with dev_run(tmp_path_factory.mktemp("tutorial") / "data") as made:
        made.start(env={"CHAT_AUTH_ARGON2_MEMORY_KIB": "8"})
        yield made
        assert made.end() == 0, made.text()


@pytest.fixture(scope="module")
def npm_env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of the commands: npm installs from this machine."""
    build()
    folder = tmp_path_factory.mktemp("npm")
    env = os.environ | {
        "PATH": f"{Path(node()).parent}{os.pathsep}{os.environ['PATH']}",
        "npm_config_cache": str(folder / "cache"),
        "npm_config_update_notifier": "false",
        "npm_config_audit": "false",
    }
    with open_registry(PACKAGE / "node_modules") as registry:
        yield env | {"npm_config_registry": f"{registry.url}/"}


def write_files(folder: Path) -> list[str]:
    """Write each file of the tutorial to the path before its block; return the commands."""
    text = TUTORIAL.read_text("utf-8")
    commands: list[str] = []
    end = 0
    for found in BLOCK.finditer(text):
        language, code = found.groups()
        if language == "sh":
            commands += code.strip().splitlines()
        else:
            (folder / NAMES.findall(text[end : found.start()])[-1]).write_text(code, "utf-8")
        end = found.end()
    return commands


@contextlib.asynccontextmanager
async def page_server(folder: Path, command: str, env: dict[str, str]) -> AsyncIterator[str]:
    """Run the command that serves the page; yield the printed address."""
    process = await asyncio.create_subprocess_exec(
        *shlex.split(command),
        cwd=folder,
        env=env | {"NO_COLOR": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    output = ""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while (found := re.search(r"http://localhost:\d+/", output)) is None:
                line = (await process.stdout.readline()).decode()
                assert line, output
                output += line
        yield found[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 15)
        await wait_for_exit(process)


async def enter_password(page: Page, url: str, user: str, password: str) -> None:
    """Fill in and submit the login form."""
    await page.goto(url)
    await page.get_by_label("Username").fill(user)
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Log in").click()


async def log_in(page: Page, url: str, user: str) -> None:
    await enter_password(page, url, user, PASSWORD)
    await expect(page.get_by_label("Chat with")).to_be_visible()


async def send(page: Page, text: str) -> None:
    await page.get_by_label("Message", exact=True).fill(text)
    await page.get_by_label("Message", exact=True).press("Enter")


async def test_tutorial_builds_a_chat_from_an_empty_folder(
    server: DevRun, npm_env: dict[str, str], browser: Browser, tmp_path: Path
) -> None:
    """Two people find each other, chat, and see typing and read status."""
    env = npm_env | {"CHAT_API": server.page_url, "CHAT_GATEWAY": server.gateway_url}
    *commands, serve = write_files(tmp_path)
    assert (len(commands), serve) == (2, "npx vite")
    assert len([path for path in tmp_path.iterdir() if path.is_file()]) == 5
    pack = ("npm", "pack", "--ignore-scripts", "--pack-destination", str(tmp_path))
    await asyncio.to_thread(run, *pack, cwd=PACKAGE)
    for command in commands:
        await asyncio.to_thread(
            subprocess.run, shlex.split(command), cwd=tmp_path, env=env, check=True, timeout=200
        )
    assert not (tmp_path / "node_modules" / "tierchat").is_symlink()

    async with page_server(tmp_path, serve, env) as url, contextlib.AsyncExitStack() as stack:
        pages: list[Page] = []
        errors: list[str] = []
        for user in ("tutor-ann", "tutor-ben"):
            context = await browser.new_context()
            stack.push_async_callback(context.close)
            page = await context.new_page()
            page.on("pageerror", lambda error: errors.append(str(error)))
            await log_in(page, url, user)
            pages.append(page)
        ann, ben = pages
        log = "log"

        await ann.get_by_label("Chat with").fill("tutor-ben")
        await ann.get_by_label("Chat with").press("Enter")
        await expect(ann.get_by_role("heading", name="tutor-ben")).to_be_visible()
        await send(ann, "Hello **Ben**")
        await ben.get_by_role("button", name="tutor-ann").click()
        await expect(ben.get_by_role(log)).to_contain_text("Hello **Ben**")
        await expect(ann.locator("[data-own]")).to_have_attribute("data-state", "read")

        await ben.get_by_label("Message", exact=True).press_sequentially("Hi")
        await expect(ann.get_by_role(log)).to_contain_text("tutor-ben is typing…")
        await ben.get_by_label("Message", exact=True).press("Enter")
        await expect(ann.get_by_role(log)).to_contain_text("Hi")
        await expect(ann.get_by_role(log)).not_to_contain_text("typing")
        await expect(ann.get_by_role("img", name="online")).to_be_visible()

        await enter_password(ben, url, "tutor-ben", f"{PASSWORD}x")
        await expect(ben.get_by_role("alert")).to_have_text("user name or password is wrong")
        await log_in(ben, url, "tutor-ben")  # after a reload, messages come from the store
        await ann.get_by_label("Message", exact=True).fill("Still there?")
        await ann.get_by_role("button", name="Send").click()
        await expect(ben.get_by_label("1 unread")).to_be_visible()
        await expect(ben).to_have_title("(1) Chat")
        await ben.get_by_role("button", name="tutor-ann").click()
        await expect(ben.locator(".tierchat-message")).to_have_count(3)
        await expect(ben).to_have_title("Chat")
        assert errors == []
