"""The web client has no axe violations: all pages, light and dark, wide and phone."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.e2e.web.client_support import Visit
from tests.e2e.web.stack_support import PHONE, WIDE, WebStack
from tests.support.web_client import ROOT

AXE = ROOT / "clients" / "web" / "node_modules" / "axe-core" / "axe.min.js"
RUN_AXE = """async () => {
  await Promise.all(document.getAnimations().map((each) => each.finished.catch(() => {})));
  const { violations } = await axe.run(document);
  return violations.map(({ id, nodes }) => [id, ...nodes.map(({ html, failureSummary }) =>
    `${html.slice(0, 200)} ${failureSummary}`)]);
}"""
PAGES = [
    "settings",
    "settings/profile",
    "settings/appearance",
    "settings/notifications",
    "settings/privacy",
    "settings/nosuch",
]


async def find_violations(page: Page) -> list[Any]:
    await page.wait_for_load_state("networkidle")
    # Run in an isolated world of the debugger, because the page's policy blocks foreign scripts.
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE.read_text("utf-8"))
    found: list[Any] = await page.evaluate(RUN_AXE)
    return found


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_pages_have_no_violations(
    web: WebStack, visit: Visit, scheme: str, size: tuple[int, int]
) -> None:
    """Login, chat list, dialogs, a conversation, and the pages that need no data."""
    ann, ben = web.new_users(2)
    async with web.stack.chat_of(ben) as writer:
        chat = await writer.open_direct(ann)
        await writer.send(chat, "Some **bold** text, `code` and https://example.com")
    person = await visit(ann, size, color_scheme=scheme, is_logged_in=False)
    page, found = person.page, {}
    await page.goto(person.url)
    await expect(page.get_by_role("button", name=f"Continue as {ann}", exact=True)).to_be_visible()
    found["login"] = await find_violations(page)
    await person.log_in()
    await expect(person.row(ben)).to_be_visible()
    found["chats"] = await find_violations(page)
    await page.goto(f"{person.url}chats?new=group")
    await expect(page.get_by_role("dialog")).to_be_visible()
    found["new group"] = await find_violations(page)
    await page.goto(f"{person.url}chats/{chat}")
    await expect(person.messages("Some bold text")).to_be_visible()
    await person.send("My own, with https://example.com")
    await expect(person.messages("My own").get_by_role("img", name="Sent")).to_be_visible()
    found["conversation"] = await find_violations(page)
    for path in PAGES:
        await page.goto(f"{person.url}{path}")
        await expect(page.get_by_role("heading").first).to_be_visible()
        found[path] = await find_violations(page)

    assert {name: each for name, each in found.items() if each} == {}
