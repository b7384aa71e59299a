"""The HTTP part of the TypeScript SDK in Chromium: upload progress, push and chat preferences."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route

from tests.e2e.reference.support import PASSWORD
from tests.e2e.web.stack_support import PUSH_ENV
from tests.support.devrun import DevRun, dev_run
from tests.support.typescript import build

pytestmark = pytest.mark.asyncio(loop_scope="session")

UPLOAD_BYTES = 3_000_000
UPLOAD_BYTES_PER_S = 1_500_000  # a slow connection, so that there is progress to report
PAGE = """<!doctype html><title>SDK</title><script type="module">
import { Account, ChatClient } from "/sdk/dist/index.js";
window.open = async (user, options) => {
  const { apiUrl, url, password, isNew } = options;
  const enter = isNew ? Account.register : Account.logIn;
  const account = await enter.call(Account, { apiUrl }, user, password);
  const client = new ChatClient({ url, apiUrl, getToken: account.getToken, syncDrafts: true });
  await client.connect();
  return client;
};
window.isReady = true;
</script>"""
UPLOAD = """async ([user, options, size]) => {
  const client = await window.open(user, options);
  const chat = await client.createGroup(["guest"], "Files");
  const bytes = new Uint8Array(size).map((_, index) => index % 251);
  const shares = [];
  const file = await chat.upload(new Blob([bytes]), {
    name: "data.bin",
    onProgress: (share) => void shares.push(share),
  });
  const sent = await chat.send({ attachments: [file], durability: "stored" });
  const copy = new Uint8Array(
    await (await client.download(file.id, { seq: sent.seq })).arrayBuffer(),
  );
  const isSame = copy.length === size && copy.every((byte, index) => byte === bytes[index]);
  const controller = new AbortController();
  const canceled = [];
  const reason = await chat.upload(new Blob([bytes]), {
    signal: controller.signal,
    onProgress: (share) => {
      canceled.push(share);
      if (share > 0) controller.abort();
    },
  }).catch(({ name }) => name);
  return { shares, isSame, reason, canceled: canceled.at(-1) };
}"""
# Chromium on Debian has no push service, so the test creates the subscription.
PUSH = """async ([user, options]) => {
  const client = await window.open(user, options);
  const { push_key: key } = await client.http.call("get_client_config", {});
  const pair = await crypto.subtle.generateKey({ name: "ECDH", namedCurve: "P-256" }, true, [
    "deriveBits",
  ]);
  const point = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
  const encode = (bytes) => btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  const keys = { p256dh: encode(point), auth: encode(crypto.getRandomValues(new Uint8Array(16))) };
  const endpoint = "https://fcm.googleapis.com/fcm/send/abc";
  const id = await client.registerPush({ toJSON: () => ({ endpoint, keys }) });
  const again = await client.registerPush({ toJSON: () => ({ endpoint, keys }) });
  const list = async () => (await client.http.call("list_subscriptions", { limit: 10 })).items;
  const kinds = (await list()).map(({ id, kind, service }) => [id, kind, service]);
  await client.unregisterPush(id);
  return { hasKey: key.length > 80, id, again, kinds, left: await list() };
}"""
PREFERENCES = """async ([user, options]) => {
  const phone = await window.open(user, options);
  const tablet = await window.open(user, { ...options, isNew: false });
  const work = await phone.createGroup(["guest"], "Work");
  const home = await phone.createGroup(["guest"], "Home");
  await phone.preferences.change(work.id, { isArchived: true, mutedUntilS: 0 });
  await phone.preferences.pin(work.id);
  await tablet.preferences.load();
  const loaded = { ...tablet.preferences.get(work.id), pinned: [...tablet.preferences.pinned] };
  const changed = new Promise((resolve) => {
    const check = () => {
      const { draft } = tablet.preferences.get(home.id);
      if (draft !== null && tablet.preferences.pinned.length === 2) resolve(draft.text);
    };
    tablet.preferences.onChange(check);
  });
  tablet.on(() => {});
  await phone.preferences.change(home.id, { draft: { text: "half", version: Date.now() } });
  await Promise.all([phone.preferences.pin(home.id), tablet.preferences.pin(home.id)]);
  const text = await changed;
  await phone.preferences.unpin(work.id);
  const pinned = [...phone.preferences.pinned];
  return { loaded, text, pinned, work: work.id, home: home.id };
}"""

DRAFTS = """async ([user, options]) => {
  const phone = await window.open(user, options);
  const tablet = await window.open(user, { ...options, isNew: false });
  const { id } = await phone.createGroup(["guest"], "Work");
  const until = (listen, isDone) => new Promise((resolve) => {
    const look = () => void (isDone() && resolve());
    listen(look);
    look();
  });
  const isDraft = (client, text) => {
    return until((look) => client.onChange(look), () => client.chat(id).draft === text);
  };
  const isOnServer = async (text) => {
    for (;;) {
      const { draft } = await phone.http.call("get_chat_preferences", { chat: id });
      if ((draft?.text ?? "") === text) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  };
  phone.chat(id).draft = "hal";
  phone.chat(id).draft = "half";
  await isDraft(tablet, "half");
  tablet.chat(id).draft = "half a text";
  await isDraft(phone, "half a text");
  phone.chat(id).draft = "";
  await isDraft(tablet, "");
  tablet.chat(id).draft = "x".repeat(4001); // longer than what the server keeps
  phone.chat(id).draft = "other";
  await phone.close(); // sends its text at once
  await isOnServer("other");
  await until(
    (look) => tablet.preferences.onChange(look),
    () => tablet.preferences.get(id).draft.text === "other",
  );
  const kept = tablet.chat(id).draft.length;
  tablet.chat(id).draft = "mine";
  await isOnServer("mine");
  return kept;
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevRun]:
    """A running `chatserver dev` that sends push notifications."""
    build()
    with dev_run(tmp_path_factory.mktemp("browser-api") / "data") as made:
        made.start(env={"CHAT_AUTH_ARGON2_MEMORY_KIB": "8", **PUSH_ENV})
        made.get("/v1/auth/register", {"user": "guest", "password": PASSWORD})
        yield made
        assert made.end() == 0, made.text()


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, server: DevRun) -> AsyncIterator[Page]:
    """A page of the server's origin that loads the built package."""
    package = build()

    async def serve(route: Route) -> None:
        path = route.request.url.removeprefix(f"{server.page_url}/sdk/")
        if path == "":
            await route.fulfill(body=PAGE, content_type="text/html")
            return
        kind = mimetypes.guess_type(path)[0] or "text/javascript"
        await route.fulfill(body=(package / path).read_bytes(), content_type=kind)

    # The page does not come from the network, so it needs permission for loopback requests.
    context = await browser.new_context(permissions=["local-network-access"])
    await context.route(f"{server.page_url}/sdk/**", serve)
    made = await context.new_page()
    await made.goto(f"{server.page_url}/sdk/")
    await made.wait_for_function("window.isReady")
    yield made
    await context.close()


def options_of(server: DevRun) -> dict[str, Any]:
    """Return the options of a client of a new user."""
    urls = {"apiUrl": server.page_url, "url": server.gateway_url}
    return {**urls, "password": PASSWORD, "isNew": True}


async def test_upload_reports_progress_and_can_be_canceled(server: DevRun, page: Page) -> None:
    """The progress increases to 1; a canceled upload rejects with AbortError."""
    devtools = await page.context.new_cdp_session(page)
    line = {"offline": False, "latency": 0, "downloadThroughput": -1}
    await devtools.send("Network.enable")
    await devtools.send(
        "Network.emulateNetworkConditions", {**line, "uploadThroughput": UPLOAD_BYTES_PER_S}
    )

    found = await page.evaluate(UPLOAD, ["up-ann", options_of(server), UPLOAD_BYTES])

    shares = found["shares"]
    assert (shares[0], shares[-1]) == (0, 1)
    assert shares == sorted(shares)
    assert len([share for share in shares if 0 < share < 1]) >= 2, shares
    assert found["isSame"]
    assert found["reason"] == "AbortError"
    assert 0 < found["canceled"] < 1


async def test_push_registration_is_listed_and_removed(server: DevRun, page: Page) -> None:
    """Registering a subscription twice creates one registration."""
    found = await page.evaluate(PUSH, ["push-ann", options_of(server)])

    assert found["hasKey"]
    assert found["again"] == found["id"]
    assert found["kinds"] == [[found["id"], "web", "fcm.googleapis.com"]]
    assert found["left"] == []


async def test_drafts_are_the_same_on_all_devices(server: DevRun, page: Page) -> None:
    """A draft that is edited on this device is not replaced by another device's draft."""
    assert await page.evaluate(DRAFTS, ["draft-ann", options_of(server)]) == 4_001


async def test_preferences_are_the_same_on_all_devices(server: DevRun, page: Page) -> None:
    """Preferences are loaded once and then updated. Both devices can change the pinned chats."""
    found = await page.evaluate(PREFERENCES, ["pref-ann", options_of(server)])

    loaded = found["loaded"]
    assert (loaded["isArchived"], loaded["mutedUntilS"]) == (True, 0)
    assert loaded["pinned"] == [found["work"]]
    assert found["text"] == "half"
    assert found["pinned"] == [found["home"]]
