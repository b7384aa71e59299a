"""Push notifications in the web client: settings, service worker and notifications."""

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest_asyncio
from playwright.async_api import CDPSession, Locator, Worker, expect

from tests.e2e.web.client_support import WORKER_READY, Visit, Visitor
from tests.e2e.web.pages_support import open_caller
from tests.e2e.web.stack_support import PATIENCE_MS, PUSH_VAPID, WebStack
from tests.support.servers.processes import eventually
from tests.support.servers.push_service import Browser as PushBrowser
from tests.support.servers.push_service import PushService, open_push_service

# Chromium on Debian has no push service; only the subscription is replaced.
SUBSCRIBE = """
(() => {
  const form = %s;
  const subscription = {
    toJSON: () => form,
    unsubscribe: async () => (localStorage.removeItem("subscribed"), true),
  };
  PushManager.prototype.subscribe = async function ({ userVisibleOnly, applicationServerKey }) {
    if (!userVisibleOnly || applicationServerKey.length !== 87) throw new Error("bad options");
    localStorage.setItem("subscribed", "yes");
    return subscription;
  };
  PushManager.prototype.getSubscription = async () =>
    localStorage.getItem("subscribed") === null ? null : subscription;
})();
"""
SHOWN = """async () => {
  const shown = await registration.getNotifications();
  return shown.map(({ title, body, tag }) => ({ title, body, tag }));
}"""
# Counts how often the service worker has listed the windows, which it does for each push.
COUNT_CHECKS = """() => {
  const list = clients.matchAll.bind(clients);
  self.checks = 0;
  clients.matchAll = async (options) => {
    const found = await list(options);
    setTimeout(() => (self.checks += 1));
    return found;
  };
}"""
IS_FOCUSED = """async () => {
  const windows = await clients.matchAll({ type: "window", includeUncontrolled: true });
  return windows.some((window) => window.focused);
}"""
CLICK = """async (tag) => {
  const [notification] = await registration.getNotifications(tag === null ? {} : { tag });
  dispatchEvent(new NotificationEvent("notificationclick", { notification }));
}"""
SHOW_FOREIGN = """() => registration.showNotification("x", {
  tag: "foreign", data: { chat: "//evil.example/" },
})"""
LONG = {"chat": "d-long", "name": "n" * 1_000, "title": "t" * 1_000, "text": "x" * 3_000}
MARKUP = {
    "chat": "d-markup",
    "name": "\u202eAnn\u0000",
    "title": "<b>Trip</b>\u2066",
    "text": "<img src=x onerror=alert(1)>\n\u2028javascript:alert(2)",
    "ts": "soon",
    "badge": -1,
}
TYPES = {"chat": "d-types", "name": {}, "sender": ["x"], "title": 5, "text": True, "ts": 1e300}
HOSTILE_PUSHES = [
    *("", "null", "[]", "no JSON", '"text"', "{}", '{"chat":5}', '{"chat":["d-x"]}'),
    *('{"chat":"https://evil.example/","name":"x"}', '{"chat":"..","name":"x"}'),
    *(json.dumps(each) for each in (LONG, MARKUP, {**TYPES, "badge": "many"})),
]
HIDE_WINDOW = """Object.defineProperty(document, "visibilityState", {
  get: () => "hidden", configurable: true,
});
document.dispatchEvent(new Event("visibilitychange"));"""
WAIT_S = PATIENCE_MS / 1000

Deliver = Callable[[str], Awaitable[None]]


@pytest_asyncio.fixture(loop_scope="session")
async def service() -> AsyncIterator[PushService]:
    async with open_push_service() as made:
        made.vapid_private, made.vapid_public = PUSH_VAPID
        yield made


async def log_in(person: Visitor, browser: PushBrowser) -> None:
    """Log in with a browser that can subscribe."""
    form = {"endpoint": browser.endpoint, "keys": browser.keys}
    await person.context.grant_permissions(["notifications"])
    await person.context.add_init_script(SUBSCRIBE % json.dumps(form))
    await person.log_in()


async def open_setting(person: Visitor) -> Locator:
    """Open the notification settings; return the switch."""
    await person.page.get_by_role("link", name="Settings").click()
    await person.page.get_by_role("link", name="Notifications").click()
    switch = person.page.get_by_role("switch", name="Push notifications")
    await expect(switch).to_be_enabled()
    return switch


async def find_registration(devtools: CDPSession, scope: str) -> str:
    """Return the registration id of the service worker, as used by the DevTools protocol."""
    found: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_update(event: dict[str, list[dict[str, str]]]) -> None:
        for one in event["registrations"]:
            if one["scopeURL"] == scope and not found.done():
                found.set_result(one["registrationId"])

    devtools.on("ServiceWorker.workerRegistrationUpdated", on_update)
    await devtools.send("ServiceWorker.enable")
    return await asyncio.wait_for(found, WAIT_S)


async def open_push(person: Visitor) -> tuple[Worker, Deliver]:
    """Return the service worker of a window, and a function that delivers a push message to it."""
    devtools = await person.context.new_cdp_session(person.page)
    registration = await find_registration(devtools, person.url)
    origin = person.url.rstrip("/")
    (script,) = person.context.service_workers

    async def deliver(data: str) -> None:
        form = {"origin": origin, "registrationId": registration, "data": data}
        await devtools.send("ServiceWorker.deliverPushMessage", form)

    return script, deliver


async def test_push_is_shown_to_a_background_user_except_from_muted_chats(
    web: WebStack, visit: Visit, service: PushService
) -> None:
    """The switch turns notifications on.

    A push goes through the service worker and the push service to a notification that opens the
    chat.
    """
    ann, ben = web.new_users(2)
    await visit(ann)
    bob, browser = await visit(ben, is_logged_in=False), service.new_browser()
    await log_in(bob, browser)
    switch = await open_setting(bob)
    await switch.click()
    await expect(switch).to_be_checked()
    await bob.page.get_by_role("link", name="Chats").click()
    await bob.page.evaluate(HIDE_WINDOW)
    async with open_caller(web, ann) as caller:
        direct = await caller.open_direct(ben)
        group = await caller.create_group("Trip", ben)
        worker = await web.stack.start_worker_async("notify")
        try:
            await caller.send(direct, "Are you there?")
            (notice,) = await browser.wait_for(1)
            await mute(bob, ann, "Mute", "Mute until I unmute it")
            await caller.send(direct, "This is muted")
            await caller.send(group, "To all")
            await browser.wait_for(2)
            await mute(bob, ann, "Unmute")
            await caller.send(direct, "This is not muted")
            notices = await browser.wait_for(3)
        finally:
            worker.kill()
    assert [each["text"] for each in notices] == ["Are you there?", "To all", "This is not muted"]
    assert (notices[1]["chat"], notices[1]["title"]) == (group, "Trip")

    script, deliver = await open_push(bob)

    # The first push arrives while the window has the focus, the second one after it is closed.
    await script.evaluate(COUNT_CHECKS)
    await bob.page.bring_to_front()
    await eventually(lambda: script.evaluate(IS_FOCUSED), WAIT_S)
    await deliver(json.dumps({**notice, "chat": "another-chat"}))
    await eventually(lambda: script.evaluate("() => checks > 0"), WAIT_S)
    await bob.page.goto("about:blank")

    async def is_closed() -> bool:
        return not await script.evaluate(IS_FOCUSED)

    await eventually(is_closed, WAIT_S)
    shown = [{"title": ann, "body": "Are you there?", "tag": direct}]

    # DevTools does not report whether the service worker handled a push. A second push for the same
    # chat replaces the first notification.
    async def is_shown() -> bool:
        await deliver(json.dumps(notice))
        with contextlib.suppress(AssertionError):
            await eventually(lambda: script.evaluate(SHOWN), 10)
        return bool(await script.evaluate(SHOWN) == shown)

    await eventually(is_shown, WAIT_S)
    await bob.page.goto(bob.url)
    await bob.wait_for_list()
    await script.evaluate(CLICK, None)
    await expect(bob.page).to_have_url(f"{bob.url}chats/{urllib.parse.quote(direct, safe='~')}")
    await expect(bob.messages("Are you there?")).to_have_count(1)
    assert await script.evaluate(SHOWN) == []
    await bob.check_is_clean()


async def mute(person: Visitor, title: str, *actions: str) -> None:
    """Mute or unmute a chat in its menu, and wait until the server has saved it."""
    chat = person.page.get_by_role("listitem").filter(
        has=person.page.get_by_text(title, exact=True)
    )
    await chat.get_by_role("link").hover()
    await chat.get_by_role("button", name=f"Actions for {title}").click()
    async with person.page.expect_response("**/preferences"):
        for action in actions:
            await person.page.get_by_role("menuitem", name=action, exact=True).click()


async def test_push_subscription_is_renewed_and_removed_by_switch_and_logout(
    web: WebStack, visit: Visit, service: PushService
) -> None:
    """The server has the subscription only while notifications are on."""
    (ann,) = web.new_users(1)
    person = await visit(ann, is_logged_in=False)
    await log_in(person, service.new_browser())
    async with open_caller(web, ann) as caller:

        async def list_ids() -> list[str]:
            found = await caller.call("GET", "/v1/me/push-subscriptions")
            return [str(item["id"]) for item in found["items"]]

        async def has(count: int) -> bool:
            return len(await list_ids()) == count

        switch = await open_setting(person)
        await switch.click()
        await expect(switch).to_be_checked()
        (known,) = await list_ids()
        await switch.click()
        await expect(switch).not_to_be_checked()
        await eventually(lambda: has(0), WAIT_S)
        await switch.click()
        await expect(switch).to_be_checked()
        await eventually(lambda: has(1), WAIT_S)

        # As if the subscription had expired.
        await caller.call("DELETE", f"/v1/me/push-subscriptions/{known}")
        await person.page.reload()
        await expect(switch).to_be_checked()
        await eventually(lambda: has(1), WAIT_S)

        await person.page.get_by_role("link", name="Settings").click()
        await person.page.get_by_role("button", name="Log out").click()
        await person.page.get_by_role("dialog").get_by_role("button", name="Log out").click()
        await expect(person.page.get_by_text("Welcome to tierchat")).to_be_visible()
        assert await list_ids() == []
        assert await person.page.evaluate("localStorage.getItem('subscribed')") is None
    await person.check_is_clean()


async def test_hostile_push_is_plain_text_and_opens_no_foreign_page(
    web: WebStack, visit: Visit
) -> None:
    """Wrong types, markup and control characters are shown as plain text or not at all."""
    (ann,) = web.new_users(1)
    person = await visit(ann, is_logged_in=False)
    await person.context.grant_permissions(["notifications"])
    await person.log_in()
    await person.page.evaluate(WORKER_READY)
    script, deliver = await open_push(person)
    await person.page.goto("about:blank")
    expected = [
        {"title": f"{'n' * 79}… · {'t' * 79}…", "body": f"{'x' * 199}…", "tag": "d-long"},
        {
            "title": "Ann · <b>Trip</b>",
            "body": "<img src=x onerror=alert(1)> javascript:alert(2)",
            "tag": "d-markup",
        },
        {"title": "tierchat", "body": "…", "tag": "d-types"},
    ]

    async def is_expected() -> bool:
        shown = await script.evaluate(SHOWN)
        return bool(sorted(shown, key=lambda each: str(each["tag"])) == expected)

    # DevTools does not report whether the service worker handled a push.
    async def are_shown() -> bool:
        for data in HOSTILE_PUSHES:
            await deliver(data)
        with contextlib.suppress(AssertionError):
            await eventually(is_expected, 10)
        return await is_expected()

    await eventually(are_shown, WAIT_S)
    await person.page.goto(person.url)
    await person.wait_for_list()
    await script.evaluate(SHOW_FOREIGN)
    await script.evaluate(CLICK, "foreign")
    await script.evaluate(CLICK, "d-markup")
    await expect(person.page).to_have_url(f"{person.url}chats/d-markup")
    assert person.context.pages == [person.page]
    assert await person.page.evaluate("window.__violations") == []
