"""The TypeScript SDK in Chromium: state after a reload, and one connection for all tabs."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page

from tests.support.servers.processes import eventually
from tests.support.stack import HOST, Stack, open_stack
from tests.support.typescript import build

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAGE = """<!doctype html><title>SDK</title><script type="module">
import { ChatClient, IndexedDbStore } from "/dist/index.js";
window.received = [];
window.start = async (options) => {
  window.client = new ChatClient({
    ...options,
    getToken: () => options.token,
    store: new IndexedDbStore("alice"),
    isOfflineFirst: true,
  });
  client.on((event) => {
    if (event.type === "messageAdded") received.push(event.message.body);
  });
  await client.connect();
};
window.getState = (id) => {
  const chat = client.chat(id);
  return {
    isOnline: client.isOnline,
    isLeader: client.isLeader,
    received,
    bodies: chat.messages.map(({ body }) => body),
    pending: chat.pending.map(({ fields }) => fields.body),
    draft: chat.draft,
    unread: chat.unread,
    chats: client.chats.map(({ id }) => id),
  };
};
window.isReady = true;
</script>"""


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the page and the built package."""

    def do_GET(self) -> None:
        if self.path != "/":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    handler = functools.partial(Handler, directory=str(build()))
    with http.server.ThreadingHTTPServer((HOST, 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://{HOST}:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, origin: str) -> Iterator[Stack]:
    """A stack whose gateway accepts the page."""
    env = {"CHAT_GATEWAY_ORIGINS": json.dumps([origin])}
    with open_stack(tmp_path_factory.mktemp("sdk"), fsync="no", env=env) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    made = await browser.new_context()
    yield made
    await made.close()


class Tab:
    """A page with a client of a user."""

    def __init__(self, page: Page, origin: str, options: dict[str, Any]) -> None:
        self.page = page
        self.origin = origin
        self.options = options

    async def start(self) -> None:
        """Open the page, or reload it, and connect."""
        await self.page.goto(f"{self.origin}/")
        await self.page.wait_for_function("window.isReady")
        await self.page.evaluate("(options) => start(options)", self.options)

    async def run(self, script: str, *args: Any) -> Any:
        return await self.page.evaluate(script, list(args))

    async def wait(self, chat: str, is_done: Callable[[dict[str, Any]], bool], what: str) -> Any:
        """Wait until the client's state of a chat meets a condition; return the state."""

        async def read_state() -> Any:
            state = await self.page.evaluate("(chat) => getState(chat)", chat)
            assert is_done(state), state
            return state

        return await eventually(read_state, what=what)

    async def wait_for_bodies(self, chat: str, *bodies: str) -> Any:
        return await self.wait(chat, lambda s: s["bodies"] == list(bodies), f"messages {bodies}")


Open = Callable[..., Awaitable[Tab]]


@pytest.fixture
def open_tab(context: BrowserContext, stack: Stack, origin: str) -> Open:
    """Return a function that opens another tab of a user."""
    return functools.partial(_open_tab, context, stack, origin)


async def _open_tab(
    context: BrowserContext, stack: Stack, origin: str, user: str, **more: Any
) -> Tab:
    options = {"url": f"ws://{HOST}:{stack.port}/", "token": stack.token(user), **more}
    tab = Tab(await context.new_page(), origin, options)
    await tab.start()
    return tab


OPEN = "async ([user]) => (await client.openDirect(user)).id"
SEND = "async ([chat, text]) => (await client.chat(chat).send({ body: text })).seq"
POST = "([chat, text]) => void client.chat(chat).send({ body: text })"


async def test_messages_draft_and_outbox_survive_a_reload_without_a_gateway(
    stack: Stack, open_tab: Open
) -> None:
    """The page opens offline. Messages written offline are sent exactly once."""
    await stack.add_users(["ann", "ben"])
    tab = await open_tab("ann")
    chat = await tab.run(OPEN, "ben")
    await tab.run(SEND, chat, "one")
    await tab.wait_for_bodies(chat, "one")
    port = stack.port
    stack.gateways.pop().kill()
    await tab.wait(chat, lambda state: not state["isOnline"], "it is offline")
    await tab.run(POST, chat, "two")
    await tab.run("([chat]) => { client.chat(chat).draft = 'unsent'; }", chat)
    await eventually(lambda: is_saved(tab, chat), what="it is saved")

    await tab.start()  # a reload

    state = await tab.wait_for_bodies(chat, "one")
    assert (state["isOnline"], state["pending"][-1], state["draft"]) == (False, "two", "unsent")
    assert state["chats"] == [chat]
    assert await tab.run("async ([chat]) => (await client.chat(chat).history()).tier", chat) == (
        "cache"
    )
    stack.start_gateway(port)
    await tab.wait_for_bodies(chat, "one", "two")
    await tab.wait(chat, lambda state: state["pending"] == [], "it is stored")
    page = await tab.run("async ([chat]) => (await client.chat(chat).history()).messages", chat)
    assert [message["body"] for message in page] == ["one", "two"]

    await tab.run("() => client.forget()")
    databases = await tab.run(
        "async () => { await start(OPTIONS); return client.chats.length; }".replace(
            "OPTIONS", json.dumps(tab.options)
        )
    )
    assert databases == 0


async def is_saved(tab: Tab, chat: str) -> bool:
    read = """([chat]) => new Promise((resolve) => {
      const request = indexedDB.open("alice");
      request.onsuccess = () => {
        const transaction = request.result.transaction(["records", "drafts"]);
        const outbox = transaction.objectStore("records").get("outbox");
        const draft = transaction.objectStore("drafts").get(chat);
        transaction.oncomplete = () => {
          request.result.close();
          const bodies = (outbox.result?.operations ?? []).map(({ fields }) => fields.body);
          resolve(bodies.includes("two") && draft.result === "unsent");
        };
      };
    })"""
    return bool(await tab.run(read, chat))


async def test_tabs_share_a_connection_and_elect_a_new_leader(stack: Stack, open_tab: Open) -> None:
    """The tabs are one device. When the leader closes, no message is lost or repeated."""
    await stack.add_users(["cat", "dan"])
    first = await open_tab("cat", shareTabs="cat")
    second = await open_tab("cat", shareTabs="cat")
    third = await open_tab("cat", shareTabs="cat")
    chat = await first.run(OPEN, "dan")
    tabs = [first, second, third]
    states = [await tab.wait(chat, lambda s: s["isOnline"], "online") for tab in tabs]
    assert [state["isLeader"] for state in states] == [True, False, False]
    devices = {await tab.run("() => client.device") for tab in tabs}
    assert len(devices) == 1

    assert await second.run(SEND, chat, "one") == 1
    assert await third.run(SEND, chat, "two") == 2
    for tab in tabs:
        await tab.wait_for_bodies(chat, "one", "two")
    await second.run("([chat]) => { client.chat(chat).draft = 'half'; }", chat)
    await third.wait(chat, lambda state: state["draft"] == "half", "the draft is in all tabs")

    await second.run(
        "([chat]) => { for (let n = 0; n < 20; n++) client.chat(chat).send("
        "{ body: `burst ${n}` }); }",
        chat,
    )
    await first.page.close()
    burst = [f"burst {number}" for number in range(20)]
    await third.run(POST, chat, "last")

    for tab in (second, third):
        state = await tab.wait(
            chat,
            lambda s: (
                sorted(s["bodies"]) == sorted(["one", "two", "last", *burst])
                and s["pending"] == []
                and len(s["received"]) == 23
            ),
            "all messages are in all tabs, and stored",
        )
        assert [body for body in state["bodies"] if body in burst] == burst
        assert state["received"] == state["bodies"]
    leaders = [await tab.run("() => client.isLeader") for tab in (second, third)]
    assert sorted(leaders) == [False, True]
    page = await third.run("async ([chat]) => (await client.chat(chat).history()).messages", chat)
    assert len(page) == 23
