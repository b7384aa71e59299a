"""Accounts in the browser: register, chat, come back, and out of everywhere."""

from __future__ import annotations

import re
import secrets

import pytest
from playwright.async_api import Page, expect

from tests.e2e.web_support import PHONE, WIDE, Arrive, Person, WebStack

pytest_plugins = ["tests.e2e.web_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")

PASSWORD = "correct horse battery"


async def enter(person: Person, url: str, *, is_new: bool) -> None:
    """Register or log in on the page."""
    page = person.page
    await page.goto(url)
    await page.get_by_text("Use a password").click()
    if is_new:
        await page.get_by_role("button", name="New here? Create an account").click()
    await page.get_by_label("Username").fill(person.user)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Create account" if is_new else "Log in").first.click()
    await person.wait_for_list()


async def open_account(page: Page) -> None:
    """Open the dialog of the account."""
    await page.get_by_role("button", name=re.compile("^Account menu")).click()
    await page.get_by_role("button", name="Account and devices").click()
    await expect(page.get_by_role("heading", name="Devices", exact=True)).to_be_visible()


async def test_account_registers_chats_and_is_logged_out_everywhere(
    web: WebStack, arrive: Arrive
) -> None:
    """Register, chat, and log out everywhere: the window on another device is out, too."""
    (other_user,) = web.new_users(1)
    user = f"zoe-{secrets.token_hex(4)}"
    other = await arrive(other_user)
    here = await arrive(user, WIDE, enter=lambda person: enter(person, web.url, is_new=True))
    there = await arrive(user, PHONE, enter=lambda person: enter(person, web.url, is_new=False))
    await here.start_chat(other_user)
    await here.send("Hello from an account")
    await other.open_chat(user)
    await other.expect_bodies("Hello from an account")

    await open_account(here.page)
    await expect(here.page.locator(".device")).to_have_count(2)
    await expect(here.page.locator(".device").filter(has_text="This device")).to_have_count(1)
    await here.page.get_by_role("button", name="Log out everywhere").click()

    for person in (here, there):
        await expect(person.page.get_by_text("Use a password")).to_be_visible()
    await expect(there.page.get_by_text("Your session has ended.")).to_be_visible()
    await there.page.reload()
    await expect(there.page.get_by_text("Use a password")).to_be_visible()


async def test_account_survives_a_reload_and_a_new_tab_without_a_token_in_reach(
    web: WebStack, arrive: Arrive
) -> None:
    """The cookie goes on where the page stopped; no script finds a token in the storage."""
    user = f"zoe-{secrets.token_hex(4)}"
    person = await arrive(user, PHONE, enter=lambda one: enter(one, web.url, is_new=True))

    stored = await person.page.evaluate("JSON.stringify({...sessionStorage, ...localStorage})")
    await person.page.reload()
    await person.wait_for_list()
    second = await person.context.new_page()
    await second.goto(web.url)

    await expect(second.locator(".chat-scroller")).to_be_visible()
    assert "eyJ" not in stored
    assert await person.page.evaluate("document.cookie") == ""
    width = await second.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE[0]
    await open_account(second)
    width = await second.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE[0]


async def test_account_profile_is_shown_to_who_shares_a_chat(web: WebStack, arrive: Arrive) -> None:
    """Name and text are saved, are there again, and stand in the person's dialog as they are."""
    (other_user,) = web.new_users(1)
    user = f"zoe-{secrets.token_hex(4)}"
    person = await arrive(user, PHONE, enter=lambda one: enter(one, web.url, is_new=True))
    other, page = await arrive(other_user), person.page
    await person.start_chat(other_user)
    await person.send("Hello")
    await page.go_back()
    await open_account(page)

    await page.get_by_label("Name", exact=True).fill("Zoë <b>Z</b>")
    await page.get_by_label("About you").fill("At sea")
    await page.get_by_role("button", name="Save profile").click()
    await expect(page.get_by_text("Profile saved.")).to_be_visible()
    width = await page.evaluate("document.documentElement.scrollWidth")
    await page.keyboard.press("Escape")
    await open_account(page)
    await other.open_chat(user)
    await other.page.get_by_role("button", name=f"About {user}").click()

    await expect(page.get_by_label("Name", exact=True)).to_have_value("Zoë <b>Z</b>")
    about = other.page.get_by_role("dialog", name=user)
    await expect(about).to_contain_text("Zoë <b>Z</b>")
    await expect(about).to_contain_text("At sea")
    assert width <= PHONE[0]
    await other.check_is_clean()


async def test_account_changes_its_password(web: WebStack, arrive: Arrive) -> None:
    """Wrong current password is said so; the right one changes it and puts other devices out."""
    user = f"zoe-{secrets.token_hex(4)}"
    here = await arrive(user, enter=lambda one: enter(one, web.url, is_new=True))
    there = await arrive(user, enter=lambda one: enter(one, web.url, is_new=False))
    page = here.page
    await open_account(page)

    await page.get_by_role("button", name="Change password").click()
    await expect(page.get_by_text("Enter your current password.")).to_be_visible()
    await page.get_by_label("Current password").fill("not this one")
    await page.get_by_label("New password").fill("another long secret")
    await page.get_by_role("button", name="Change password").click()
    await expect(page.get_by_text("Your current password is incorrect.")).to_be_visible()
    await page.get_by_label("Current password").fill(PASSWORD)
    await page.get_by_role("button", name="Change password").click()

    await expect(page.get_by_text("Password changed.")).to_be_visible()
    await expect(there.page.get_by_text("Your session has ended.")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.locator(".chat-scroller")).to_be_visible()


async def test_account_is_exported_and_deleted(web: WebStack, arrive: Arrive) -> None:
    """A copy can be loaded; deleting asks for the password, and takes what was said from others."""
    (other_user,) = web.new_users(1)
    user = f"zoe-{secrets.token_hex(4)}"
    other = await arrive(other_user)
    person = await arrive(user, PHONE, enter=lambda one: enter(one, web.url, is_new=True))
    page = person.page
    await person.start_chat(other_user)
    await person.send("Not for ever")
    await other.open_chat(user)
    await other.expect_bodies("Not for ever")
    await page.go_back()
    await open_account(page)

    await page.get_by_role("button", name="Export my data").click()
    link = page.get_by_role("link", name="Download your export")
    await expect(link).to_be_visible()
    async with page.expect_download() as download:
        await link.click()
    assert (await download.value).suggested_filename == f"chat-export-{user}.zip"
    await page.get_by_role("button", name="Delete my account", exact=True).click()
    await page.get_by_label("Your password").fill("not this one")
    await page.get_by_role("button", name="Delete my account permanently").click()
    await expect(page.get_by_text("The password is incorrect.")).to_be_visible()
    await page.get_by_label("Your password").fill(PASSWORD)
    await page.get_by_role("button", name="Delete my account permanently").click()

    await expect(page.get_by_text("Your account was deleted.")).to_be_visible()
    for place in (other.bodies, other.page.locator(".chat-scroller")):
        said = place.filter(has_text="Not for ever")
        await expect(said).to_have_count(0)
    width = await page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE[0]
