"""The web client: accounts, outages, keyboard use and the first load."""

from __future__ import annotations

import re
import secrets

from playwright.async_api import expect

from tests.e2e.web.client_support import (
    WORKER_READY,
    Visit,
    Visitor,
    session_of,
)
from tests.e2e.web.stack_support import PHONE, WebStack

PASSWORD = "correct horse battery"
LOAD_BYTES_MAX = 150_000
REQUESTS_MAX = 15
STORED = "indexedDB.databases().then((found) => found.map(({ name }) => name))"
# Returns what the page has loaded so far: requests and compressed bytes.
LOADED = """() => {
  const loaded = [
    ...performance.getEntriesByType("navigation"),
    ...performance.getEntriesByType("resource"),
  ];
  const bytes = loaded.reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0);
  return { names: loaded.map(({ name }) => name), bytes };
}"""


async def test_two_accounts_chat_and_a_logout_leaves_nothing(web: WebStack, visit: Visit) -> None:
    """A user registers, chats, logs out, and finds the chat again after the next login."""
    first, second = f"zoe-{secrets.token_hex(4)}", f"yan-{secrets.token_hex(4)}"
    zoe = await visit(first, is_logged_in=False)
    yan = await visit(second, PHONE, is_logged_in=False)
    await zoe.register(PASSWORD)
    await yan.register(PASSWORD)
    await zoe.start_chat(second)
    await zoe.send("Hello **Yan**")
    await expect(yan.row(first)).to_contain_text("Hello Yan")
    await expect(yan.row(first)).to_contain_text("1 unread message")
    await yan.open_chat(first)
    await expect(yan.messages("Hello Yan").locator("strong")).to_have_text("Yan")
    await yan.send("Hello Zoe")
    await expect(zoe.messages("Hello Zoe")).to_have_count(1)

    await zoe.page.get_by_role("link", name="Settings").click()
    await zoe.page.get_by_role("button", name="Log out").click()
    await zoe.page.get_by_role("dialog").get_by_role("button", name="Log out").click()
    await expect(zoe.page.get_by_text("Welcome to tierchat")).to_be_visible()
    assert await zoe.page.evaluate(STORED) == []
    kept = await zoe.page.evaluate("Object.keys(localStorage)")
    assert [key for key in kept if first in key or "session" in key] == []
    await zoe.page.reload()
    await zoe.page.get_by_text("Use a password").click()
    await zoe.page.get_by_label("Username").fill(first)
    await zoe.page.get_by_label("Password").fill(PASSWORD)
    await zoe.page.get_by_role("button", name="Log in").first.click()

    await expect(zoe.row(second)).to_contain_text("Hello Zoe")
    await zoe.check_is_clean()
    await yan.check_is_clean()


async def test_reload_offline_shows_the_chats_and_sends_once(web: WebStack, visit: Visit) -> None:
    """Messages and drafts written offline survive a reload, and each message is sent once."""
    ann, ben = web.new_users(2)
    async with web.stack.chat_of(ben) as writer:
        chat = await writer.open_direct(ann)
        await writer.send(chat, "before the outage")
        person = await visit(ann, is_far=True)
        await person.open_chat(ben)
        await expect(person.messages("before the outage")).to_have_count(1)
        await person.page.evaluate(WORKER_READY)
        await person.wait_until_stored("before the outage")

        web.link.refuse()
        await person.context.set_offline(True)
        await person.page.reload()
        await expect(person.messages("before the outage")).to_have_count(1)
        await expect(person.banner).to_be_visible()
        await person.send("written offline")
        await expect(person.messages("written offline")).to_have_count(1)
        await person.field.fill("still a draft")
        for text in ("written offline", "still a draft"):
            await person.wait_until_stored(text)
        await person.page.reload()
        await expect(person.messages("written offline")).to_have_count(1)
        await expect(person.field).to_have_value("still a draft")
        web.link.end_faults()
        await person.context.set_offline(False)

        await expect(person.banner).to_have_count(0)
        await expect(person.messages("written offline").get_by_label("Sent")).to_be_visible()
        await person.page.reload()
        await expect(person.messages("written offline")).to_have_count(1)
        history = await writer.request("history", chat=chat, limit=50)
        bodies = [message["body"] for message in history["messages"]]
        assert bodies.count("written offline") == 1
        # The service worker does not handle other paths of the server.
        for path, status in (("docs", 200), ("v1/openapi.json", 200), ("nosuch", 404)):
            answer = await person.page.goto(web.far_url + path)
            assert answer is not None
            assert (answer.status, answer.from_service_worker) == (status, False)
    await person.check_is_clean(had_outage=True)


async def test_chat_is_started_read_and_left_by_keyboard(web: WebStack, visit: Visit) -> None:
    """New chat, message, chat list and chat menu work without a mouse."""
    ann, ben = web.new_users(2)
    person = await visit(ann)
    page = person.page

    async def tab_to(role: str, name: str) -> None:
        target = page.get_by_role(role, name=name, exact=True).first  # type: ignore[arg-type]
        for _ in range(40):
            if await target.evaluate("(element) => element === document.activeElement"):
                return
            await page.keyboard.press("Tab")
        raise AssertionError(f"Tab does not reach the {role} {name!r}")

    await tab_to("button", "New chat")
    await page.keyboard.press("Enter")
    await page.keyboard.press("Enter")  # the first item of the menu
    await expect(page.get_by_label("Username")).to_be_focused()
    await page.keyboard.type(ben)
    await page.keyboard.press("Enter")
    await expect(person.field).to_be_focused()
    await page.keyboard.type("By keyboard")
    await page.keyboard.press("Enter")
    await expect(person.messages("By keyboard")).to_have_count(1)
    await page.keyboard.press("Tab")
    await page.get_by_role("textbox", name="Filter chats").focus()
    await page.keyboard.press("ArrowDown")
    await expect(person.row(ben)).to_be_focused()
    await page.keyboard.press("Shift+F10")
    await expect(page.get_by_role("menuitem").first).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(person.row(ben)).to_be_focused()
    await person.check_is_clean()


async def test_first_load_is_small(web: WebStack, visit: Visit) -> None:
    """With an empty cache, the chat list after a login loads within the limits."""
    ann, ben = web.new_users(2)
    async with web.stack.chat_of(ben) as writer:
        chat = await writer.open_direct(ann)
        await writer.send(chat, "hello")
    person: Visitor = await visit(ann, service_workers="block", is_logged_in=False)
    config = await (await person.context.request.get(f"{web.url}v1/client-config")).json()
    await person.context.add_init_script(session_of(ann, config))
    await person.page.goto(person.url)
    await expect(person.row(ben)).to_contain_text("hello")
    await person.page.wait_for_load_state("networkidle")

    loaded = await person.page.evaluate(LOADED)

    names = {re.sub(r"^https?://[^/]+", "", name) for name in loaded["names"]}
    assert len(names) < REQUESTS_MAX, names
    assert loaded["bytes"] < LOAD_BYTES_MAX
