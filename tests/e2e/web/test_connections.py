"""Connecting of the web client: notices of failures, and requests of a page load."""

from __future__ import annotations

import json
import secrets

import pytest
from playwright.async_api import Request, expect

from tests.e2e.web.client_support import Visit, Visitor
from tests.e2e.web.stack_support import WebStack
from tests.support.servers.processes import free_port

PASSWORD = "correct horse battery"


def record_refreshes(person: Visitor) -> list[str]:
    """Record the renewals of the login that a page requests."""
    found: list[str] = []

    def on_request(request: Request) -> None:
        if request.url.endswith("/auth/refresh"):
            found.append(request.url)

    person.page.on("request", on_request)
    return found


@pytest.mark.parametrize("has_locks", [True, False])
async def test_page_load_renews_the_login_once(
    web: WebStack, visit: Visit, *, has_locks: bool
) -> None:
    """All requests of a page share one renewal, also without Web Locks."""
    person = await visit(f"zoe-{secrets.token_hex(4)}", service_workers="block", is_logged_in=False)
    if not has_locks:
        await person.context.add_init_script("delete Navigator.prototype.locks;")
    await person.register(PASSWORD)
    refreshes = record_refreshes(person)

    await person.page.goto(f"{person.url}companions")
    heading = person.page.get_by_role("heading", name="Companions", exact=True)
    await expect(heading.first).to_be_visible()
    await person.page.wait_for_load_state("networkidle")

    assert len(refreshes) == 1
    await person.check_is_clean()


async def test_refused_origin_is_told_from_a_server_that_is_down(
    web: WebStack, visit: Visit
) -> None:
    """The page names the setting of the administrator, and its own origin."""
    (ann,) = web.new_users(1)
    gateway = web.stack.start_gateway(
        port := free_port(), CHAT_GATEWAY_ORIGINS=json.dumps(["https://other.example"])
    )
    api = web.start_api(api_port := free_port(), port)
    try:
        alice = await visit(ann, is_logged_in=False)
        alice.url = f"http://127.0.0.1:{api_port}/"
        await alice.page.goto(alice.url)
        await alice.page.get_by_role("button", name=f"Continue as {ann}", exact=True).click()

        status = alice.page.get_by_role("status").filter(has_text="CHAT_GATEWAY_ORIGINS")
        await expect(status).to_contain_text(f"http://127.0.0.1:{api_port}")
        await expect(alice.page.get_by_text("Can't reach the server")).to_have_count(0)
    finally:
        api.kill()
        gateway.kill()
        web.stack.gateways.remove(gateway)


async def test_banner_is_shown_when_the_browser_says_that_it_is_offline(
    web: WebStack, visit: Visit
) -> None:
    """It does not wait until the socket ends, and goes away with the network."""
    (ann,) = web.new_users(1)
    alice = await visit(ann)
    await expect(alice.banner).to_have_count(0)

    await alice.context.set_offline(True)
    await expect(alice.page.get_by_text("You're offline.")).to_be_visible()
    await alice.context.set_offline(False)

    await expect(alice.banner).to_have_count(0)
    await alice.check_is_clean(had_outage=True)


async def test_device_with_a_wrong_clock_shows_no_time_in_the_future(
    web: WebStack, visit: Visit
) -> None:
    """With a clock that is three days behind, others were last seen now or before."""
    ann, ben = web.new_users(2)
    async with web.stack.chat_of(ben) as writer:
        chat = await writer.open_direct(ann)
        await writer.send(chat, "Hello")
        alice = await visit(ann, is_logged_in=False)
        await alice.context.add_init_script(
            """const Real = Date, differenceMs = -3 * 86_400_000;
            window.Date = class extends Real {
              constructor(...given) {
                if (given.length > 0) super(...given);
                else super(Real.now() + differenceMs);
              }
              static now() { return Real.now() + differenceMs; }
            };"""
        )
        await alice.log_in()
        await alice.open_chat(ben)
        await alice.send("Hello yourself")
        await expect(alice.messages("Hello yourself")).to_have_count(1)
    header = alice.page.get_by_role("main").get_by_role("banner")
    await expect(header.or_(alice.page.locator("main header")).first).to_contain_text("Last seen")
    text = await alice.page.locator("main header").first.inner_text()
    assert " in " not in text, text
    await alice.check_is_clean()
