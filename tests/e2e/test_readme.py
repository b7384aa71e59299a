"""The first hour of the README, carried out as written.

One run of `make run` serves all steps, which are independent of each other.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import signal
from collections.abc import AsyncIterator, Iterator

import pytest
from playwright.async_api import Browser, expect

from chatserver.dev.command import dev as dev_command
from chatserver.dev.demo_users import DEMO_USERS
from tests.e2e.newcomer import MakeRun, first_hour_step, section
from tests.e2e.web.client_support import Visitor
from tests.e2e.web.stack_support import PATIENCE_MS, record_console
from tests.support.deadlines import EXIT_S
from tests.support.devrun import DEADLINE_S, TerminalChat
from tests.support.servers.processes import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeRun]:
    """A run of the README's first command; Ctrl-C at the end stops all processes."""
    run = MakeRun(tmp_path_factory.mktemp("newcomer"))
    try:
        run.start()
        yield run
        run.press_ctrl_c()
        assert run.leftovers() == []
    finally:
        if run.process is not None and run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGKILL)
            run.process.wait(EXIT_S)
        run.leftovers()


@contextlib.asynccontextmanager
async def two_windows(browser: Browser, run: MakeRun) -> AsyncIterator[tuple[Visitor, Visitor]]:
    """Open the page twice and log in as in the README."""
    step = first_hour_step("Two people")
    async with contextlib.AsyncExitStack() as windows:
        people = []
        for user in DEMO_USERS[:2]:
            # High enough for all messages: the page contains only visible ones.
            context = await browser.new_context(viewport={"width": 1280, "height": 1400})
            context.set_default_timeout(PATIENCE_MS)
            windows.push_async_callback(context.close)
            page = await context.new_page()
            person = Visitor(user, run.page_url, context, page, [])
            record_console(page, person.console_errors)
            people.append(person)
            await page.goto(run.page_url)
            label = step.bold(f"Continue as {user}")
            await page.get_by_role("button", name=label, exact=True).click()
            await person.wait_for_list()
        yield people[0], people[1]


async def begin_chat(alice: Visitor, bob: Visitor) -> None:
    """Start the chat in one window and open it in the other."""
    step = first_hour_step("Two people")
    await alice.page.get_by_role("button", name=step.bold("New chat")).first.click()
    await alice.page.get_by_role("menuitem", name=step.bold("New chat")).click()
    await alice.page.get_by_label("Username").fill(step.code("bob"))
    await alice.page.get_by_role("button", name=step.bold("Start chat"), exact=True).click()
    hello = f"Hello {secrets.token_hex(4)}"
    await alice.send(hello)
    await bob.open_chat("alice")
    await expect(bob.messages(hello)).to_be_visible()


async def test_readme_first_command_starts_everything_and_prints_the_address(
    newcomer: MakeRun,
) -> None:
    """The printed addresses are those of the README, apart from the ports."""
    output = newcomer.text()

    defaults = {one.name: one.default for one in dev_command.params}
    text = section("Two people chatting in sixty seconds").text
    assert f"<http://127.0.0.1:{defaults['port']}/>" in text
    assert str(defaults["data"]) == ".dev"
    assert newcomer.page_url in output
    assert newcomer.get("/healthz")[0] == 200
    assert b"<!doctype html>" in newcomer.get("/")[1].lower()


async def test_readme_terminal_chat_connects(newcomer: MakeRun) -> None:
    """The command of the first section sends a line of text."""
    (command,) = section("Two people chatting in sixty seconds").commands[1:]
    *program, as_, user, with_, peer = shlex.split(command)
    assert (*program, as_, with_) == (".venv/bin/chatserver", "chat", "--as", "--with")

    async with TerminalChat(newcomer, user, peer) as person:
        person.send_line("Hello from a terminal")
        await person.wait_for_line("alice: Hello from a terminal")


async def test_readme_two_people_chat_in_two_browsers(newcomer: MakeRun, browser: Browser) -> None:
    """Each user sees the other's messages and the status of their own."""
    step = first_hour_step("Two people")
    async with two_windows(browser, newcomer) as (alice, bob):
        await begin_chat(alice, bob)

        lunch, gladly = (f"{text} {secrets.token_hex(4)}" for text in ("Lunch at one?", "Gladly."))
        await alice.send(lunch)
        await expect(bob.messages(lunch)).to_be_visible()
        await bob.send(gladly)

        await expect(alice.messages(gladly)).to_be_visible()
        await expect(alice.messages(lunch).get_by_role("img", name="Read")).to_be_visible()
    assert "sent, delivered, read" in " ".join(step.text.split())


async def test_readme_companion_answers(newcomer: MakeRun, browser: Browser) -> None:
    """No model and no account are needed."""
    step = first_hour_step("A companion")
    async with two_windows(browser, newcomer) as (_, bob):
        await bob.page.get_by_role("link", name=step.bold("Companions")).click()
        chat = f"{step.bold('Chat')}: {step.bold('Echo')}"
        await bob.page.get_by_role("button", name=chat).click()
        await bob.send("one two three")

        await expect(bob.messages("You said: one two three")).to_be_visible()


async def test_readme_load_tool_writes_a_report_that_opens_in_the_browser(
    newcomer: MakeRun, browser: Browser
) -> None:
    """The report shows that all thresholds are met."""
    step = first_hour_step("Run a load test")
    (command,) = step.commands

    await newcomer.shell(f"{command.strip()} --url {newcomer.gateway_url}")

    page = await browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    console_errors: list[str] = []
    page.on("pageerror", lambda error: console_errors.append(str(error)))
    await page.goto((newcomer.home / step.code("report.html")).as_uri())
    await expect(page.get_by_role("heading", level=1)).to_contain_text("direct")
    await expect(page.get_by_text(step.bold("All thresholds met"), exact=True)).to_be_visible()
    await expect(page.locator("figure svg").first).to_be_visible()
    await page.close()
    assert console_errors == []


async def test_readme_killed_gateway_restarts_without_message_loss(
    newcomer: MakeRun, browser: Browser
) -> None:
    """Messages sent before, during and after the outage arrive once, in the same order for both."""
    step = first_hour_step("Kill the gateway")
    (command,) = step.commands
    (number,) = re.findall(r"\bkill -9 (\d+)$", command.strip())
    assert f"process {number}`" in " ".join(step.text.split())
    *_, pid = newcomer.find_process("gateway is (?:ready on [^,]*|restarted)")
    texts = {f"{word} {index}" for word in ("before", "meanwhile", "after") for index in range(5)}

    async with two_windows(browser, newcomer) as (alice, bob):
        await begin_chat(alice, bob)
        await alice.send(*(f"before {index}" for index in range(5)))
        await newcomer.shell(command.replace(number, str(pid)))
        for index in range(0, 4, 2):
            await alice.send(f"meanwhile {index}")
            await bob.send(f"meanwhile {index + 1}")
        await alice.send("meanwhile 4")
        end = step.code("gateway ended with -9")
        await eventually(lambda: end in newcomer.text(), DEADLINE_S, "its end is reported")
        for person in (alice, bob):
            await expect(person.banner).to_have_count(0)
        await bob.send(*(f"after {index}" for index in range(5)))

        seen = [await texts_of(person, texts) for person in (alice, bob)]
        assert seen[0] == seen[1]
        assert sorted(seen[0]) == sorted(texts)
    assert len(newcomer.find_process("gateway restarted")) >= 1


async def texts_of(person: Visitor, texts: set[str]) -> list[str]:
    """Wait until a window shows each text once and as sent; return them in the order shown."""
    for text in texts:
        message = person.messages(text)
        await expect(message).to_have_count(1)
        await expect(message.get_by_role("img", name="Sending")).to_have_count(0)
    log = await person.page.get_by_role("log").inner_text()
    return re.findall("|".join(map(re.escape, texts)), log)


async def test_readme_audit_finds_nothing_wrong(newcomer: MakeRun) -> None:
    """With the settings of the run, the audit finds that all tiers are consistent."""
    step = first_hour_step("Check what is stored")
    (commands,) = step.commands

    output = await newcomer.shell(commands)

    assert step.code("nothing is wrong") in output
