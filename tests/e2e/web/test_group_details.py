"""Details and management of a group in the web client."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.e2e.web.pages_support import SMALL, check_page, make_picture, open_caller, open_page
from tests.e2e.web.stack_support import WebStack


def panel_of(page: Page) -> Locator:
    return page.get_by_role("region", name="Group info")


def member(page: Page, user: str) -> Locator:
    return panel_of(page).get_by_role("listitem").filter(has_text=user)


async def choose(page: Page, user: str, action: str) -> None:
    await member(page, user).get_by_role("button", name=f"Actions for {user}").click()
    await page.get_by_role("menuitem", name=action, exact=True).click()


async def test_owner_manages_members_settings_bans_and_reports(
    web: WebStack, browser: Browser
) -> None:
    """The owner can add, promote, mute, ban, unban, rename, set slow mode and resolve a report."""
    ann, ben, cy = web.new_users(3)
    async with open_caller(web, ann) as a, open_caller(web, ben) as b:
        group = await a.create_group("Crew", ben)
        seq = await a.send(group, "Reported text")
        await b.call("PUT", f"/v1/chats/{group}/messages/{seq}/report", {"reason": "wrong link"})

    async with open_page(web, browser, ann, f"chats/{group}/details") as page:
        await page.get_by_role("button", name="Add", exact=True).click()
        await page.get_by_label("Usernames").fill(cy)
        await page.get_by_role("dialog").get_by_role("button", name="Add", exact=True).click()
        await expect(member(page, cy)).to_be_visible()
        await choose(page, ben, "Make admin")
        await expect(member(page, ben)).to_contain_text("Admin")
        await choose(page, cy, "Mute for 1 hour")
        await expect(member(page, cy)).to_contain_text("can't send messages")
        await choose(page, cy, "Ban from group")
        await page.get_by_role("dialog").get_by_role("button", name="Ban from group").click()
        await expect(member(page, cy)).to_have_count(0)

        await expect(page.get_by_role("tab", name="Manage")).to_be_in_viewport(ratio=1)
        await page.get_by_role("tab", name="Manage").click()
        report = panel_of(page).get_by_role("article", name=f"Reported by {ben}")
        await expect(report).to_contain_text("wrong link")
        await expect(report).to_contain_text("Reported text")
        await report.get_by_role("button", name=f"Resolve the report by {ben}").click()
        await expect(panel_of(page).get_by_text("No open reports.")).to_be_visible()
        await page.get_by_role("button", name=f"Unban {cy}").click()
        await expect(page.get_by_text("No one is banned from this group.")).to_be_visible()
        await page.get_by_label("Slow mode").select_option("30")
        await expect(page.get_by_text("Saved.")).to_be_visible()
        await panel_of(page).get_by_label("Name", exact=True).fill("Night crew")
        await panel_of(page).get_by_label("Topic").fill("On call")
        await panel_of(page).get_by_role("button", name="Save", exact=True).click()
        await expect(panel_of(page).get_by_role("heading", name="Night crew")).to_be_visible()
        picture = {"name": "a.png", "mimeType": "image/png", "buffer": make_picture("red")}
        await page.get_by_label("Change picture").set_input_files([picture])
        await expect(panel_of(page).locator("img")).to_be_visible()
    async with open_caller(web, ann) as a:
        info = await a.call("GET", f"/v1/chats/{group}")
        assert (info["slow_s"], info["name"], info["topic"]) == (30, "Night crew", "On call")


async def test_member_mutes_notifications_finds_links_and_pins_and_leaves(
    web: WebStack, browser: Browser
) -> None:
    """A member can mute, find links and pins, and leave, but has no management tab."""
    ann, ben = web.new_users(2)
    async with open_caller(web, ann) as a:
        group = await a.create_group("Readers", ben)
        seq = await a.send(group, "See https://wiki.example/a_(b). And https://docs.example/")
        await a.call("PUT", f"/v1/chats/{group}/pins/{seq}")

    async with open_page(web, browser, ben, f"chats/{group}/details", size=SMALL) as page:
        await expect(member(page, ann)).to_contain_text("Owner")
        await expect(page.get_by_role("tab", name="Manage")).to_have_count(0)
        await page.get_by_role("button", name="Notifications").click()
        await page.get_by_role("menuitem", name="Mute for 8 hours").click()
        await expect(page.get_by_text(re.compile("^Muted until"))).to_be_visible()
        await page.get_by_role("tab", name="Links").click()
        link = panel_of(page).get_by_role("link").filter(has_text="wiki.example")
        await expect(link).to_have_attribute("href", "https://wiki.example/a_(b)")
        await expect(link).to_have_attribute("rel", "noopener noreferrer")
        await page.get_by_role("tab", name="Pinned").click()
        await expect(panel_of(page).get_by_text("See https")).to_be_visible()
        await page.get_by_role("button", name="Leave", exact=True).click()
        await page.get_by_role("dialog").get_by_role("button", name="Leave").click()
        await expect(page).to_have_url(re.compile("/chats$"))
    async with open_caller(web, ann) as a:
        assert (await a.call("GET", f"/v1/chats/{group}"))["members"] == [ann]


@pytest.mark.parametrize("size", [(1280, 800), SMALL])
async def test_group_details_pass_axe(
    web: WebStack, browser: Browser, size: tuple[int, int]
) -> None:
    """Each tab has no axe violation in light and dark mode."""
    ann, ben = web.new_users(2)
    async with open_caller(web, ann) as a:
        group = await a.create_group("Crew", ben)
        await a.send(group, "See https://wiki.example/a")

    async with open_page(web, browser, ann, f"chats/{group}/details", size=size) as page:
        await expect(member(page, ben)).to_be_visible()
        for tab in ("Members", "Media", "Files", "Links", "Pinned", "Manage"):
            await page.get_by_role("tab", name=tab).click()
            await expect(page.get_by_role("tabpanel", name=tab)).to_be_visible()
            await expect(panel_of(page).get_by_role("status")).to_have_count(0)
            await check_page(page)
