"""Notifications in the browser: turned on by a click, shown by its worker, opened by a click."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import CDPSession, expect

from tests.e2e.web_support import PATIENCE_MS, PUSH_VAPID, Arrive, Person, WebStack
from tests.support.servers.processes import eventually
from tests.support.servers.push_service import Browser as PushBrowser
from tests.support.servers.push_service import PushService, open_push_service

pytest_plugins = ["tests.e2e.web_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")

# Debian's Chromium has no push service behind it: subscribing is the one thing that is put on.
SUBSCRIBE = """
PushManager.prototype.subscribe = async function (options) {
  if (!options.userVisibleOnly || options.applicationServerKey.length !== 65) throw new Error();
  const form = %s;
  return (window.__subscription = { toJSON: () => form, unsubscribe: async () => true });
};
PushManager.prototype.getSubscription = async () => window.__subscription ?? null;
"""
SHOWN = """async () => {
  const shown = await registration.getNotifications();
  return shown.map(({ title, body, tag }) => ({ title, body, tag }));
}"""
# How often the worker has looked for windows: so it is known when it has decided about a push.
COUNT_LOOKS = """() => {
  const list = clients.matchAll.bind(clients);
  self.looks = 0;
  clients.matchAll = async (options) => {
    const found = await list(options);
    setTimeout(() => (self.looks += 1));
    return found;
  };
}"""
SOMEBODY_LOOKS = """async () => {
  const windows = await clients.matchAll({ type: "window", includeUncontrolled: true });
  return windows.some((window) => window.focused);
}"""
NOBODY_LOOKS = """async () => {
  const windows = await clients.matchAll({ type: "window", includeUncontrolled: true });
  return !windows.some((window) => window.focused);
}"""
CLICK = """async () => {
  const [notification] = await registration.getNotifications();
  dispatchEvent(new NotificationEvent("notificationclick", { notification }));
}"""


@pytest_asyncio.fixture(loop_scope="session")
async def service() -> AsyncIterator[PushService]:
    """The push service that the stack's pushes go to."""
    async with open_push_service() as made:
        made.vapid_private, made.vapid_public = PUSH_VAPID
        yield made


async def turn_on(person: Person, browser: PushBrowser) -> None:
    """Turn notifications on, as a user does."""
    form = {"endpoint": browser.endpoint, "keys": browser.keys}
    await person.context.grant_permissions(["notifications"])
    await person.page.evaluate(SUBSCRIBE % json.dumps(form))
    await press(person, "Turn on notifications")
    await expect(person.page.get_by_role("button", name="Turn off notifications")).to_be_visible()
    await person.page.keyboard.press("Escape")


async def open_menu(person: Person) -> None:
    """Open the user's own menu."""
    await person.page.get_by_role("button", name="Menu").click()


async def press(person: Person, name: str) -> None:
    """Choose something of the menu."""
    await open_menu(person)
    await person.page.get_by_role("button", name=name, exact=True).click()


async def deliver(devtools: CDPSession, registration: str, origin: str, notice: object) -> None:
    """Have the browser wake its worker with a push."""
    data = json.dumps(notice)
    form = {"origin": origin, "registrationId": registration, "data": data}
    await devtools.send("ServiceWorker.deliverPushMessage", form)


async def find_registration(devtools: CDPSession) -> str:
    """Return the id of the registered worker, as the browser's tools name it."""
    found: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_update(event: dict[str, list[dict[str, str]]]) -> None:
        for one in event["registrations"]:
            if one["scopeURL"].endswith("/push/") and not found.done():
                found.set_result(one["registrationId"])

    devtools.on("ServiceWorker.workerRegistrationUpdated", on_update)
    await devtools.send("ServiceWorker.enable")
    return await asyncio.wait_for(found, PATIENCE_MS / 1000)


async def test_web_push_reaches_a_browser_whose_user_looks_away(
    web: WebStack, arrive: Arrive, service: PushService
) -> None:
    """From the click that turns it on, through the worker and a push service, to a notification
    that opens the chat."""
    ann, ben = web.new_users(2)
    alice, bob = await arrive(ann), await arrive(ben)
    browser = service.new_browser()
    await turn_on(bob, browser)
    worker = await web.stack.bring_up_worker("notify")

    try:
        await bob.page.evaluate(
            """Object.defineProperty(document, "hidden", { get: () => true, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"))"""
        )
        await alice.start_chat(ben)
        await alice.send("Are you there?")
        (notice,) = await browser.wait_for(1)
    finally:
        worker.kill()

    chat = notice["chat"]
    assert notice["text"] == "Are you there?"
    devtools = await bob.context.new_cdp_session(bob.page)
    registration = await find_registration(devtools)
    origin, shown = web.url.rstrip("/"), {"title": ann, "body": "Are you there?", "tag": chat}
    (script,) = bob.context.service_workers
    await script.evaluate(COUNT_LOOKS)
    # The first one comes while the window has the focus, the second one when it is gone.
    await bob.page.bring_to_front()
    await eventually(lambda: script.evaluate(SOMEBODY_LOOKS), what="the window has the focus")
    await deliver(devtools, registration, origin, {**notice, "chat": "another-chat"})
    await eventually(lambda: script.evaluate("() => looks > 0"), what="the worker looked")
    await bob.page.goto("about:blank")
    await eventually(lambda: script.evaluate(NOBODY_LOOKS), what="the window is gone")

    # The browser's tools do not say whether the worker took a push. Once shown, a second one of the
    # same chat takes the place of the first.
    async def is_shown() -> bool:
        await deliver(devtools, registration, origin, notice)
        with contextlib.suppress(AssertionError):
            await eventually(lambda: script.evaluate(SHOWN), 10)
        assert await script.evaluate(SHOWN) == [shown]
        return True

    await eventually(is_shown, PATIENCE_MS / 1000)
    await bob.page.goto(web.url)
    await bob.wait_for_list()
    await script.evaluate(CLICK)
    await expect(bob.title).to_have_text(ann)
    await bob.expect_bodies("Are you there?")
    assert await script.evaluate(SHOWN) == []
    await bob.check_is_clean()


async def test_web_push_chat_is_muted_and_all_is_turned_off(
    web: WebStack, arrive: Arrive, service: PushService
) -> None:
    """The switch of a chat is kept at the server; who logs out is not reached any more."""
    ann, ben = web.new_users(2)
    bob = await arrive(ben)
    mute = bob.page.get_by_role("button", name="Mute this chat")
    await bob.start_chat(ann)
    await expect(mute).to_have_count(0)
    await turn_on(bob, service.new_browser())

    await expect(mute).to_have_attribute("aria-pressed", "false")
    await mute.click()
    await expect(mute).to_have_attribute("aria-pressed", "true")
    notifications = """async () => {
      const { token } = JSON.parse(sessionStorage.getItem("chat.session"));
      const headers = { authorization: `Bearer ${token}` };
      const answer = await fetch("/v1/me/push-subscriptions", { headers });
      return (await answer.json()).items.length;
    }"""
    assert await bob.page.evaluate(notifications) == 1
    await press(bob, "Turn off notifications")
    await expect(mute).to_have_count(0)

    async def is_off() -> bool:
        return bool(await bob.page.evaluate(notifications) == 0)

    await eventually(is_off, PATIENCE_MS / 1000)
    await bob.check_is_clean()
