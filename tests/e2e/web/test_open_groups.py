"""Open groups in the web client: the invite link, the page before joining, and unsaved settings."""

from __future__ import annotations

from playwright.async_api import Browser, expect

from tests.e2e.web.client_support import Visit
from tests.e2e.web.pages_support import check_page, open_caller, open_page
from tests.e2e.web.stack_support import WebStack

GONE = "This chat doesn't exist, or you are not a member."


async def test_invite_link_of_an_open_group_lets_others_join(
    web: WebStack, browser: Browser, visit: Visit
) -> None:
    """The link shows name and size only while the group is open; one click joins."""
    ann, ben, cy = web.new_users(3)
    async with open_caller(web, ann) as owner:
        group = await owner.create_group("Chess club", cy)
        await owner.send(group, "Before")
    bob = await visit(ben)
    link = f"{web.url}chats/{group}"
    await bob.page.goto(link)
    await expect(bob.page.get_by_text(GONE)).to_be_visible()
    assert "Chess club" not in await bob.page.inner_text("body")

    context = {"permissions": ["clipboard-read", "clipboard-write"]}
    async with open_page(web, browser, ann, f"chats/{group}/details", **context) as page:
        await page.get_by_role("tab", name="Manage").click()
        await expect(page.get_by_label("Invite link")).to_have_count(0)
        await page.get_by_label("Who can join").select_option("Anyone with the invite link")
        await expect(page.get_by_role("textbox", name="Invite link")).to_have_value(link)
        await page.get_by_role("tabpanel").get_by_role("button", name="Copy invite link").click()
        await expect(page.get_by_text("Link copied.")).to_be_visible()
        assert await page.evaluate("navigator.clipboard.readText()") == link
    await bob.page.goto(link)
    await expect(bob.page.get_by_role("heading", name="Chess club")).to_be_visible()
    await expect(bob.page.get_by_text("2 members")).to_be_visible()
    await check_page(bob.page)
    await bob.page.get_by_role("button", name="Join group").click()

    await expect(bob.field).to_be_visible()
    await expect(bob.row("Chess club")).to_be_visible()
    await bob.send("Hello")
    await expect(bob.messages("Hello")).to_have_count(1)
    await bob.check_is_clean(had_outage=True)  # the refused requests


async def test_unsaved_topic_is_saved_when_the_details_are_closed(
    web: WebStack, browser: Browser
) -> None:
    """Escape, another tab of the panel and a link save what was typed, and say so."""
    ann, ben = web.new_users(2)
    async with open_caller(web, ann) as owner:
        group = await owner.create_group("Crew", ben)
    async with open_page(web, browser, ann, f"chats/{group}/details") as page:
        topic = page.get_by_label("Topic")
        await page.get_by_role("tab", name="Manage").click()
        await topic.fill("First")
        await page.get_by_role("tab", name="Members").click()
        await expect(page.get_by_text("Saved.")).to_be_visible()
        await page.get_by_role("tab", name="Manage").click()
        await expect(topic).to_have_value("First")
        await topic.fill("Second")
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_visible()
        await page.goto(f"{web.url}chats/{group}/details")
        await expect(page.locator("#content").get_by_text("Second")).to_be_visible()
