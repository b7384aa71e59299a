"""The web client in browsers that refuse storage, or that lack an API: it works in memory."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Locator, Page, async_playwright, expect

from chatserver.dev.binaries import find_binary
from tests.e2e.web.client_support import Visit, Visitor
from tests.e2e.web.pages_support import make_picture
from tests.e2e.web.stack_support import (
    CHROMIUM_ARGS,
    INSECURE_HOST,
    PATIENCE_MS,
    RECORD_VIOLATIONS,
    WebStack,
    record_console,
)

PASSWORD = "correct horse battery"
NOTICE = "This browser doesn't store data for this site."
REFUSE = "throw new DOMException('refused', 'SecurityError');"
FULL = "throw new DOMException('full', 'QuotaExceededError');"
REFUSED_LOCAL = f"""for (const name of ["localStorage", "sessionStorage"])
  Object.defineProperty(window, name, {{ get() {{ {REFUSE} }} }});"""
REFUSED_DATABASE = f"IDBFactory.prototype.open = () => {{ {REFUSE} }};"
# Fault → a script that runs before the page, and whether the page cannot store its data.
FAULTS = {
    "local storage throws": (REFUSED_LOCAL, True),
    "database throws": (REFUSED_DATABASE, True),
    "database fails": (
        """IDBFactory.prototype.open = () => {
          const request = { error: new DOMException("refused", "UnknownError") };
          setTimeout(() => request.onerror?.());
          return request;
        };""",
        True,
    ),
    "database hangs": ("IDBFactory.prototype.open = () => ({});", True),
    "database is full": (f"IDBObjectStore.prototype.put = () => {{ {FULL} }};", True),
    "local storage is full": (f"Storage.prototype.setItem = () => {{ {FULL} }};", True),
    "everything is refused": (
        REFUSED_LOCAL
        + REFUSED_DATABASE
        + f"""LockManager.prototype.request = async () => {{ {REFUSE} }};
        CacheStorage.prototype.has = CacheStorage.prototype.open =
        CacheStorage.prototype.delete = async () => {{ {REFUSE} }};
        ServiceWorkerContainer.prototype.register =
        ServiceWorkerContainer.prototype.getRegistration = async () => {{ {REFUSE} }};
        window.BroadcastChannel = function () {{ {REFUSE} }};""",
        True,
    ),
    "no database": (
        "Object.defineProperty(window, 'indexedDB', { value: undefined });",
        True,
    ),
    "no shared tabs": (
        "delete Navigator.prototype.locks; delete window.BroadcastChannel;",
        False,
    ),
    "no service worker": (
        "delete Navigator.prototype.serviceWorker;delete window.caches; delete window.PushManager;",
        False,
    ),
}


def notice(page: Page) -> Locator:
    """The notice that this browser stores nothing."""
    return page.get_by_role("status").get_by_text(NOTICE)


async def chat_with(web: WebStack, person: Visitor, other: str) -> None:
    async with web.stack.chat_of(other) as writer:
        await person.start_chat(other)
        await person.send("from the page")
        await writer.expect_frame("event", kind="message", cs=1)
        await writer.send(person.page.url.rpartition("/")[2], "to the page")
    await person.expect_texts("from the page", "to the page")


@pytest.mark.parametrize("fault", FAULTS)
async def test_page_works_in_memory_and_says_so_once(
    web: WebStack, visit: Visit, fault: str
) -> None:
    """Chats work with every refused API; a notice says once that nothing is stored."""
    ann, ben = web.new_users(2)
    script, is_noticed = FAULTS[fault]
    alice = await visit(ann, is_logged_in=False)
    await alice.context.add_init_script(script)

    await alice.log_in()
    await chat_with(web, alice, ben)

    await expect(notice(alice.page)).to_have_count(1 if is_noticed else 0)
    if is_noticed:
        await alice.page.get_by_role("button", name="Dismiss").click()
        await expect(notice(alice.page)).to_have_count(0)
    await alice.page.get_by_role("navigation").get_by_role("link", name="Settings").click()
    await alice.page.get_by_role("link", name="Notifications").click()
    await expect(alice.page.get_by_role("heading", name="Notifications").first).to_be_visible()
    await alice.check_is_clean()


async def open_visitor(context: BrowserContext, user: str, url: str) -> Visitor:
    """Open a window of a browser that a test has started."""
    await context.add_init_script(RECORD_VIOLATIONS)
    page = await context.new_page()
    console_errors: list[str] = []
    record_console(page, console_errors)
    return Visitor(user, url, context, page, console_errors)


async def test_account_works_without_cookies(web: WebStack, visit: Visit) -> None:
    """The login is in memory: it is renewed, and its end is reported to the server."""
    (ben,) = web.new_users(1)
    alice = await visit(f"ann-{secrets.token_hex(4)}", is_logged_in=False)
    page = alice.page
    script, _ = FAULTS["everything is refused"]
    refused = "Object.defineProperty(Navigator.prototype, 'cookieEnabled', { get: () => false });"
    await alice.context.add_init_script(script + refused)
    await page.clock.install()

    await alice.register(PASSWORD)
    assert await alice.context.cookies() == []
    await chat_with(web, alice, ben)
    await expect(notice(page)).to_have_count(1)
    async with page.expect_response("**/v1/auth/refresh") as renewed:
        await page.clock.fast_forward("12:00:00")
        await page.get_by_role("navigation").get_by_role("link", name="Settings").click()
    assert (await renewed.value).status == 200

    await page.get_by_role("button", name="Log out").click()
    async with page.expect_response("**/v1/auth/logout") as ended:
        await page.get_by_role("dialog").get_by_role("button", name="Log out").click()
    assert (await ended.value).status < 300
    assert "refresh_token" in ((await ended.value).request.post_data or "")
    await expect(page.get_by_role("heading", name="Welcome to tierchat")).to_be_visible()


@pytest_asyncio.fixture(loop_scope="session")
async def insecure() -> AsyncIterator[Browser]:
    """A Chromium in which `INSECURE_HOST` is this machine: its pages have no secure context."""
    async with async_playwright() as playwright:
        rule = f"--host-resolver-rules=MAP {INSECURE_HOST} 127.0.0.1"
        made = await playwright.chromium.launch(
            executable_path=find_binary("chromium"), args=[*CHROMIUM_ARGS, rule]
        )
        yield made
        await made.close()


async def test_page_works_without_a_secure_context(web: WebStack, insecure: Browser) -> None:
    """Over HTTP on another host, chats, files and copying work."""
    (ben,) = web.new_users(1)
    context = await insecure.new_context(reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MS)
    alice = await open_visitor(context, f"ann-{secrets.token_hex(4)}", web.insecure_url)
    page = alice.page
    await alice.register(PASSWORD)
    assert not await page.evaluate("isSecureContext")

    await chat_with(web, alice, ben)
    picture = {"name": "green.png", "mimeType": "image/png", "buffer": make_picture("green")}
    await page.locator("input[type=file]").set_input_files(picture)
    await expect(page.get_by_role("button", name="Remove green.png")).to_be_visible()
    await alice.field.fill("a picture")
    await alice.field.press("Enter")
    await expect(alice.messages("a picture").get_by_role("img").first).to_be_visible()
    await alice.choose("from the page", "Copy text")
    await expect(page.get_by_text("Copied", exact=True)).to_be_visible()
    await alice.field.focus()
    await page.keyboard.press("Control+v")

    await expect(alice.field).to_have_value("from the page")
    await expect(notice(page)).to_have_count(0)
    assert [text for text in alice.console_errors if "untrustworthy" not in text] == []
    await context.close()
