"""Search in messages in the browser, on real servers."""

from __future__ import annotations

import httpx
import pytest
from playwright.async_api import expect

from tests.e2e.web_support import Arrive, WebStack
from tests.support.rawchat import RawChat
from tests.support.servers.processes import eventually

pytest_plugins = ["tests.e2e.web_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")

LABEL = "Search chats and messages"


async def _until_indexed(web: WebStack, user: str, query: str) -> None:
    """Wait until a search over HTTP finds something."""
    headers = {"Authorization": f"Bearer {web.stack.token(user)}"}
    async with httpx.AsyncClient(base_url=web.url, headers=headers) as client:

        async def is_found() -> bool:
            answer = await client.get("/v1/search", params={"q": query})
            return answer.status_code == 200 and bool(answer.json()["items"])

        await eventually(is_found)


async def test_web_search_finds_a_message_and_jumps_to_it(web: WebStack, arrive: Arrive) -> None:
    """Hits are marked, also in hostile text; the keyboard goes from the field to the message."""
    ann, ben = web.new_users(2)
    await web.stack.add_users([ann, ben])
    phone = RawChat(ann, web.stack.port, web.stack.token, device="phone")
    await phone.start()
    made = await phone.ask("create_chat", ref="g", members=[ben], name="Trip")
    chat = made["chat"]["chat"]
    seq = (await phone.say(chat, "Frühstück at <img src=x onerror=alert(1)> nine"))["seq"]
    for number in range(150):
        await phone.say(chat, f"filler {number}")
    await _until_indexed(web, ben, "fruhst")
    bob = await arrive(ben)
    field = bob.page.get_by_label(LABEL)
    results = bob.page.get_by_role("region", name="Found messages")

    await field.fill("fruhst")
    await expect(results.get_by_role("listitem")).to_have_count(1)
    await expect(results.locator("mark")).to_have_text("Frühstück")
    await expect(results).to_contain_text("<img src=x onerror=alert(1)>")
    await field.press("ArrowDown")
    await bob.page.keyboard.press("Enter")

    target = bob.page.locator(f'.message[data-seq="{seq}"]')
    await expect(target).to_be_in_viewport()
    await expect(target).to_be_focused()
    await field.fill('"onerror alert')  # as typed, before the second quote
    await expect(results.get_by_role("listitem")).to_have_count(1)
    await field.fill("nothinglikethis")
    await expect(results).to_contain_text("No messages found.")
    await field.press("Escape")
    await expect(results).to_be_hidden()
    await bob.check_is_clean()
    await field.fill("has:link")
    await expect(results).to_contain_text("has: must be has:file")


async def test_web_search_shows_more_pages(web: WebStack, arrive: Arrive) -> None:
    """Twenty results, then the rest by a button."""
    ann, ben = web.new_users(2)
    await web.stack.add_users([ann, ben])
    phone = RawChat(ann, web.stack.port, web.stack.token, device="phone")
    await phone.start()
    made = await phone.ask("create_chat", ref="g", members=[ben], name="Recipes")
    for number in range(25):
        await phone.say(made["chat"]["chat"], f"risotto {number}")
    await _until_indexed(web, ben, '"risotto 24"')
    bob = await arrive(ben)
    results = bob.page.get_by_role("region", name="Found messages")

    await bob.page.get_by_label(LABEL).fill("risotto")
    await expect(results.get_by_role("listitem")).to_have_count(20)
    await results.get_by_role("button", name="Show more").click()

    await expect(results.get_by_role("listitem")).to_have_count(25)
    await expect(results.get_by_role("button", name="Show more")).to_be_hidden()
