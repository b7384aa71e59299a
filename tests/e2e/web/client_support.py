"""Users of the web client in a browser."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from playwright.async_api import Browser, BrowserContext, Locator, Page, expect

from tests.e2e.web.stack_support import (
    PATIENCE_MS,
    RECORD_VIOLATIONS,
    WIDE,
    WebStack,
    record_console,
)
from tests.support.servers.processes import eventually

# Console messages about network faults caused by the test.
_NETWORK = re.compile(
    r"WebSocket connection to .* failed|net::ERR_|Failed to load resource"
    r"|can.t establish a connection to the server at ws:"  # from Firefox
    r"|The connection to ws:.* was interrupted while the page was loading"
)
# The service worker does not control the first load. When it is ready, the files are cached.
WORKER_READY = "navigator.serviceWorker.ready.then(() => true)"
# Scrolls to the end of the list, then to its beginning, and returns the texts of all stored
# messages of the open chat in order. Text that is hidden from screen readers is left out; breaks
# are newlines.
READ_ALL = """async (deadlineMs) => {
  const list = document.querySelector('[role="log"]');
  const found = new Map();
  const textOf = (element) => {
    const copy = element.cloneNode(true);
    for (const aside of copy.querySelectorAll("[aria-hidden]")) aside.remove();
    for (const line of copy.querySelectorAll("br")) line.replaceWith("\\n");
    return copy.textContent;
  };
  const collect = () => {
    for (const row of list.querySelectorAll("[data-seq]")) {
      const texts = [...row.querySelectorAll("p, pre, [data-count]")].map(textOf);
      if (texts.length > 0) found.set(Number(row.dataset.seq), texts.join("\\n\\n"));
    }
  };
  const isAtStart = () => list.scrollTop === 0 && list.textContent.includes("the beginning of");
  const isAtEnd = () => list.scrollHeight - list.scrollTop - list.clientHeight < 2;
  const scroll = async (stepPx, isThere) => {
    for (let still = 0; still < 10 && performance.now() < deadlineMs; ) {
      list.scrollTop += stepPx;
      await new Promise(requestAnimationFrame);
      collect();
      still = isThere() ? still + 1 : 0;
    }
  };
  await scroll(900, () => isAtEnd() && list.dataset.live === "true");
  await scroll(-300, isAtStart);
  return [...found].sort(([a], [b]) => a - b).map(([, text]) => text);
}"""
# True once the client's store in this browser contains a text.
IS_STORED = """(text) => new Promise((resolve) => {
  const { user } = JSON.parse(localStorage.getItem("tierchat.session"));
  const request = indexedDB.open(`tierchat-${user}`);
  request.onsuccess = () => {
    const names = ["records", "chats", "drafts"];
    const transaction = request.result.transaction(names);
    const found = names.map((name) => transaction.objectStore(name).getAll());
    transaction.oncomplete = () => {
      request.result.close();
      const [records, chats, drafts] = found.map(({ result }) => result);
      const entries = chats.map((chat) => chat.entries);
      resolve(JSON.stringify([records, entries, drafts]).includes(text));
    };
  };
})"""


@dataclasses.dataclass
class Visitor:
    """A user with a window of the client."""

    user: str
    url: str
    context: BrowserContext
    page: Page
    console_errors: list[str]

    async def log_in(self) -> None:
        await self.page.goto(self.url)
        await self.page.get_by_role("button", name=f"Continue as {self.user}", exact=True).click()
        await self.wait_for_list()

    async def register(self, password: str) -> None:
        await self.page.goto(self.url)
        await self.page.get_by_text("Use a password").click()
        await self.page.get_by_role("button", name="New here? Create an account").click()
        await self.page.get_by_label("Username").fill(self.user)
        await self.page.get_by_label("Password").fill(password)
        await self.page.get_by_role("button", name="Create account").click()
        await self.wait_for_list()

    async def wait_for_list(self) -> None:
        await expect(self.page.get_by_role("heading", name="Chats", exact=True)).to_be_visible()

    async def start_chat(self, other: str) -> None:
        await self.page.get_by_role("button", name="New chat").first.click()
        await self.page.get_by_role("menuitem", name="New chat").click()
        await self.page.get_by_label("Username").fill(other)
        await self.page.get_by_role("button", name="Start chat", exact=True).click()
        await expect(self.field).to_be_visible()

    async def open_chat(self, title: str) -> None:
        await self.row(title).click()
        await expect(self.field).to_be_visible()

    async def send(self, *texts: str) -> None:
        """Type and send each message."""
        for text in texts:
            await self.field.fill(text)
            await self.field.press("Enter")
            await expect(self.field).to_have_value("")

    async def read_all(self) -> list[str]:
        """Scroll to the beginning of the open chat; return the texts of all stored messages."""
        await expect(self.page.get_by_role("log")).to_be_visible()
        deadline = await self.page.evaluate(f"performance.now() + {PATIENCE_MS}")
        texts: list[str] = await self.page.evaluate(READ_ALL, deadline)
        return texts

    async def expect_texts(self, *texts: str) -> None:
        """Wait until the open chat has exactly these messages, in this order."""

        async def has_texts() -> bool:
            found = await self.read_all()
            if found != list(texts):
                raise AssertionError(f"the chat has: {found}")
            return True

        await eventually(has_texts, PATIENCE_MS / 1000, f"{self.user} has {len(texts)} messages")

    async def choose(self, text: str, item: str) -> None:
        await self.messages(text).first.focus()
        await self.page.keyboard.press("Enter")
        await self.page.get_by_role("menuitem", name=item, exact=True).press("Enter")
        await expect(self.page.get_by_role("menuitem")).to_have_count(0)

    async def leave_window(self) -> None:
        """Remove the focus from the window."""
        await self.page.evaluate(
            "document.hasFocus = () => false; window.dispatchEvent(new Event('blur'))"
        )

    async def return_to_window(self) -> None:
        """Give the focus back to the window."""
        await self.page.evaluate(
            "delete document.hasFocus; window.dispatchEvent(new Event('focus'))"
        )

    async def report_online(self) -> None:
        """Dispatch the `online` event, so that the client reconnects at once."""
        await self.page.evaluate("window.dispatchEvent(new Event('online'))")

    async def wait_until_stored(self, text: str) -> None:
        """Wait until this device has stored a message or a draft, which takes up to a second."""
        while not await self.page.evaluate(IS_STORED, text):
            await self.page.wait_for_timeout(100)

    @property
    def field(self) -> Locator:
        """The text field of the open chat."""
        return self.page.get_by_role("textbox", name="Message", exact=True)

    @property
    def banner(self) -> Locator:
        return self.page.get_by_text(re.compile("^(Connecting…|You're offline)"))

    def row(self, title: str) -> Locator:
        return self.page.get_by_role("listitem").filter(has_text=title).get_by_role("link")

    def messages(self, text: str) -> Locator:
        return self.page.get_by_role("log").get_by_role("article").filter(has_text=text)

    def mark(self, text: str, status: str | re.Pattern[str]) -> Locator:
        """The status icon of one of the user's own messages."""
        return self.messages(text).get_by_role("img", name=status)

    async def check_is_clean(self, *, had_outage: bool = False) -> None:
        """Check that no script failed and that the content security policy blocked nothing."""
        console_errors = [
            text for text in self.console_errors if not (had_outage and _NETWORK.search(text))
        ]
        assert not console_errors, console_errors
        assert await self.page.evaluate("window.__violations") == []
        assert await self.page.evaluate("window.__xss") is None


Visit = Callable[..., Awaitable[Visitor]]


@contextlib.asynccontextmanager
async def open_visits(web: WebStack, browser: Browser) -> AsyncIterator[Visit]:
    """Open windows: each call opens a new browser profile; with `is_far`, behind the link.

    The user is logged in unless `is_logged_in` is False.

    Tests that hold requests with `route` pass `service_workers="block"`. Otherwise Playwright may
    miss requests of a page that a service worker has just begun to control.
    """
    contexts: list[BrowserContext] = []

    async def visit(
        user: str,
        size: tuple[int, int] = WIDE,
        *,
        is_far: bool = False,
        is_logged_in: bool = True,
        **options: Any,
    ) -> Visitor:
        width, height = size
        context = await browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion="reduce", **options
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        await context.add_init_script(RECORD_VIOLATIONS)
        page = await context.new_page()
        console_errors: list[str] = []
        record_console(page, console_errors)
        base = web.far_url if is_far else web.url
        visitor = Visitor(user, base, context, page, console_errors)
        if is_logged_in:
            await visitor.log_in()
        return visitor

    try:
        yield visit
    finally:
        for context in contexts:
            await context.close()


def session_of(user: str, config: dict[str, Any]) -> str:
    """Return a script that logs in a demo user before the page starts."""
    session = json.dumps(json.dumps({"kind": "demo", "user": user}))
    return (
        f"localStorage.setItem('tierchat.session', {session});"
        f"localStorage.setItem('tierchat.config', {json.dumps(json.dumps(config))})"
    )
