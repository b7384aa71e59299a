"""Invitations in the browser: a stranger's group appears among the chats once it is accepted."""

from __future__ import annotations

import httpx
import pytest
from playwright.async_api import expect

from tests.e2e.web_support import PHONE, Arrive, WebStack

pytest_plugins = ["tests.e2e.web_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_web_invitation_is_accepted_and_another_declined(
    web: WebStack, arrive: Arrive
) -> None:
    """It shows at once, adds no chat, and goes with the answer."""
    ann, ben = web.new_users(2)
    api = web.stack.start_api(CHAT_CHATS_INVITATIONS="ask_strangers")
    alice = await arrive(ann, PHONE)
    page = alice.page
    headers = {"Authorization": f"Bearer {web.stack.token(ben)}"}
    async with httpx.AsyncClient(base_url=api.endpoint, headers=headers, timeout=60) as client:
        for name in ("Sailing", "Spam"):
            made = await client.post("/v1/chats", json={"members": [ann], "name": name})
            assert made.json()["invited"] == [ann], made.text

    await expect(page.locator(".me-button.has-news")).to_have_attribute("title", "2 invitations")
    await page.get_by_role("button", name=f"logged in as {ann}").click()
    await page.get_by_role("button", name="Invitations (2)").click()
    dialog = page.get_by_role("dialog", name="Invitations")
    await expect(dialog.get_by_role("listitem")).to_have_count(2)
    await expect(page.get_by_text("Sailing")).to_have_count(1)
    await dialog.get_by_role("button", name="Decline invitation to Spam").click()
    await expect(dialog.get_by_role("status")).to_have_text("Invitation declined.")
    await dialog.get_by_role("button", name="Accept invitation to Sailing").click()
    await expect(dialog.get_by_role("status")).to_have_text("You joined Sailing.")

    await expect(dialog).to_contain_text("You don't have any invitations.")
    await dialog.get_by_role("button", name="Close").click()
    await expect(page.locator(".sidebar")).to_contain_text("Sailing")
    await expect(page.locator(".me-button.has-news")).to_have_count(0)
