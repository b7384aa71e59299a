"""The chat list of the web client: hundreds of chats, and cleared chats."""

from __future__ import annotations

import asyncio
from typing import Any

from playwright.async_api import expect

from tests.e2e.web.client_support import WORKER_READY, Visit, Visitor
from tests.e2e.web.conversation_support import NODES_MAX
from tests.e2e.web.pages_support import check_page, open_caller
from tests.e2e.web.stack_support import PATIENCE_MS, WebStack
from tests.support.servers.processes import eventually

CHATS = 240  # five pages of the list
OWNERS = 8  # the rate limit does not allow one user to create all chats
# Scrolls through the list at the frame rate of the page until the last chat is shown. Returns the
# shown titles and the maximum numbers of rows and nodes.
SCROLL_LIST = """async (count) => {
  const rows = () => [...document.querySelectorAll("[data-index]")];
  const area = rows()[0].closest("ul").parentElement;
  const seen = new Set();
  let rowsMax = 0, nodesMax = 0;
  const end = performance.now() + 45_000;
  while (seen.size < count || area.scrollTop + area.clientHeight < area.scrollHeight - 1) {
    if (performance.now() > end) throw new Error(`${seen.size} chats in ${area.scrollHeight} px`);
    area.scrollTop += 300;
    await new Promise(requestAnimationFrame);
    for (const row of rows()) seen.add(row.querySelector("bdi").textContent);
    rowsMax = Math.max(rowsMax, rows().length);
    nodesMax = Math.max(nodesMax, document.getElementsByTagName("*").length);
  }
  return { seen: [...seen], rowsMax, nodesMax };
}"""
FOCUSED = """() => {
  const row = document.activeElement.closest("[data-index]");
  return row === null ? null : Number(row.getAttribute("aria-posinset"));
}"""


async def wait_for_focus(person: Visitor, position: int) -> None:
    """Wait until the row at a position of the list has the focus."""

    async def has_focus() -> bool:
        return bool(await person.page.evaluate(FOCUSED) == position)

    await eventually(has_focus, PATIENCE_MS / 1000, what=f"row {position} has the focus")


async def test_hundreds_of_chats_scroll_filter_and_open_by_keyboard(
    web: WebStack, visit: Visit
) -> None:
    """All chats can be scrolled to and focused with a limited number of nodes."""
    ann, *owners = web.new_users(1 + OWNERS)
    names = [f"Topic {number:03}" for number in range(CHATS)]

    async def create(owner: str, some: list[str]) -> None:
        async with open_caller(web, owner) as caller:
            for name in some:
                group = await caller.create_group(name, ann)
                await caller.send(group, f"Welcome to {name}")

    shares = [names[index::OWNERS] for index in range(OWNERS)]
    await asyncio.gather(*map(create, owners, shares))
    person = await visit(ann)
    await expect(person.page.locator("[data-index]").first).to_be_visible()
    page = person.page

    found: dict[str, Any] = await page.evaluate(SCROLL_LIST, CHATS)

    assert set(found["seen"]) == set(names)
    assert found["rowsMax"] < 60
    assert found["nodesMax"] < NODES_MAX
    await expect(page.locator("[data-index]").last).to_have_attribute("aria-setsize", str(CHATS))
    await check_page(page)

    field = page.get_by_label("Filter chats")
    await field.press("ArrowDown")
    await wait_for_focus(person, 1)
    await page.keyboard.press("End")
    await wait_for_focus(person, CHATS)
    await page.keyboard.press("ArrowUp")
    await wait_for_focus(person, CHATS - 1)
    await page.keyboard.press("Home")
    await wait_for_focus(person, 1)
    await page.keyboard.press("PageDown")
    await wait_for_focus(person, 11)

    await field.fill("topic 17")
    rows = page.get_by_role("list", name="All chats").get_by_role("listitem")
    await expect(rows).to_have_count(10)
    await field.press("ArrowDown")
    await wait_for_focus(person, 1)
    await page.keyboard.press("Enter")
    await expect(person.field).to_be_visible()
    await expect(page.get_by_role("heading", name="Topic 17")).to_be_visible()
    await person.check_is_clean()


async def test_cleared_chat_stays_empty_on_all_devices_and_offline(
    web: WebStack, visit: Visit
) -> None:
    """Neither the server nor the local store returns earlier messages."""
    ann, ben = web.new_users(2)
    async with web.stack.chat_of(ben) as writer:
        chat = await writer.open_direct(ann)
        for number in range(3):
            await writer.send(chat, f"before {number}")
        laptop, tablet = await visit(ann), await visit(ann)
        for device in (laptop, tablet):
            await device.open_chat(ben)
            await expect(device.messages("before")).to_have_count(3)
        page = laptop.page
        await page.evaluate(WORKER_READY)
        await laptop.wait_until_stored("before 2")

        await page.goto(f"{laptop.url}chats/{chat}/details")
        await page.get_by_role("button", name="Clear history").click()
        await page.get_by_role("dialog").get_by_role("button", name="Clear history").click()
        await expect(page.get_by_text("History cleared for you.")).to_be_visible()
        await expect(laptop.row(ben)).to_contain_text("No messages yet")
        await expect(tablet.messages("before")).to_have_count(0)

        await laptop.open_chat(ben)
        await writer.send(chat, "afterwards")
        for device in (laptop, tablet):
            await expect(device.messages("afterwards")).to_have_count(1)
            await expect(device.messages("before")).to_have_count(0)
        await laptop.wait_until_stored("afterwards")
        await page.reload()
        await expect(laptop.messages("afterwards")).to_have_count(1)
        await laptop.context.set_offline(True)
        await page.reload()
        await expect(laptop.messages("afterwards")).to_have_count(1)
        await expect(page.get_by_role("log").get_by_role("article")).to_have_count(1)
        await laptop.context.set_offline(False)
    await laptop.check_is_clean(had_outage=True)
    await tablet.check_is_clean()
