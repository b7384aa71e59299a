"""Accounts in the web client: login, password, devices, profile, export and deletion."""

from __future__ import annotations

import re
import secrets

from playwright.async_api import expect

from tests.e2e.web.client_support import IS_STORED, Visit, Visitor
from tests.e2e.web.pages_support import WIDER_THAN_WINDOW, make_picture
from tests.e2e.web.stack_support import PHONE, WebStack

PASSWORD = "correct horse battery"
NEW_PASSWORD = "another long secret"
# Returns everything that scripts of the page can read: storage and cookies.
READABLE = "JSON.stringify([{...sessionStorage}, {...localStorage}, document.cookie])"
STORES = "indexedDB.databases().then((found) => found.map(({ name }) => name))"
ENDED = re.compile(r"^Your session has ended\.")


async def log_in(person: Visitor, password: str) -> None:
    page = person.page
    await page.get_by_text("Use a password").click()
    await page.get_by_label("Username").fill(person.user)
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Log in").first.click()
    await person.wait_for_list()


async def open_setting(person: Visitor, name: str) -> None:
    await person.page.goto(f"{person.url}settings")
    await person.page.get_by_role("link", name=name).click()
    await expect(person.page.get_by_role("heading", level=1, name=name)).to_be_visible()
    assert not await person.page.evaluate(WIDER_THAN_WINDOW)


async def test_login_survives_reload_without_readable_token_and_ends_everywhere(
    web: WebStack, visit: Visit
) -> None:
    """The login survives reloads. A new password and "Log out everywhere" end other logins."""
    user = f"zoe-{secrets.token_hex(4)}"
    here = await visit(user, is_logged_in=False)
    there = await visit(user, PHONE, is_logged_in=False)
    await here.register(PASSWORD)
    await there.page.goto(there.url)
    await log_in(there, PASSWORD)

    assert "eyJ" not in await here.page.evaluate(READABLE)
    assert await here.page.evaluate("document.cookie") == ""
    assert not await here.page.evaluate(IS_STORED, "eyJ")
    await here.page.reload()
    await here.wait_for_list()
    tab = await here.context.new_page()
    await tab.goto(here.url)
    await expect(tab.get_by_role("heading", name="Chats", exact=True)).to_be_visible()
    await tab.close()

    await open_setting(here, "Password")
    page = here.page
    await page.get_by_label("Current password").fill("not this one")
    await page.get_by_label("New password").fill(NEW_PASSWORD)
    await page.get_by_role("button", name="Change password").click()
    await expect(page.get_by_text("Your current password is incorrect.")).to_be_visible()
    await page.get_by_label("Current password").fill(PASSWORD)
    await page.get_by_role("button", name="Change password").click()
    await expect(page.get_by_text("Password changed.")).to_be_visible()
    await expect(there.page.get_by_text(ENDED)).to_be_visible()
    await log_in(there, NEW_PASSWORD)

    await open_setting(here, "Devices")
    devices = page.get_by_role("main").get_by_role("listitem")
    await expect(devices).to_have_count(2)
    await expect(devices.filter(has_text="This device")).to_have_count(1)
    await expect(devices.first).to_contain_text(
        re.compile(r"Last active (this minute|\d+ minutes? ago)")
    )
    await page.get_by_role("button", name="Log out everywhere").click()
    await page.get_by_role("dialog").get_by_role("button", name="Log out everywhere").click()
    await expect(page.get_by_text("Use a password")).to_be_visible()
    assert await page.evaluate(STORES) == []
    await expect(there.page.get_by_text(ENDED)).to_be_visible()
    await there.page.reload()
    await expect(there.page.get_by_text("Use a password")).to_be_visible()
    for person in (here, there):
        await person.check_is_clean(had_outage=True)  # the console logs the refused requests


async def test_profile_is_shown_to_others_until_the_account_is_deleted(
    web: WebStack, visit: Visit
) -> None:
    """Name, about text, picture and export; deletion requires the password and removes all data."""
    (other_user,) = web.new_users(1)
    user, name = f"zoe-{secrets.token_hex(4)}", "Zoë <b>Z</b>"
    person = await visit(user, PHONE, is_logged_in=False)
    other = await visit(other_user, is_logged_in=False)
    await person.register(PASSWORD)
    await person.start_chat(other_user)
    await person.send("Not forever")
    await expect(person.messages("Not forever").get_by_role("img", name="Sent")).to_be_visible()

    await open_setting(person, "Profile")
    page = person.page
    await page.get_by_label("Display name").fill(name)
    await page.get_by_label("About").fill("At sea")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_text("Saved", exact=True)).to_be_visible()
    picture = {"name": "me.png", "mimeType": "image/png", "buffer": make_picture("teal")}
    await page.get_by_label("Change picture").and_(page.locator("input")).set_input_files([picture])
    await expect(page.get_by_role("main").locator("img")).to_be_visible()
    await page.reload()
    await expect(page.get_by_label("Display name")).to_have_value(name)

    await other.log_in()
    await other.open_chat(name)
    await other.page.get_by_role("link", name=name).last.click()
    profile = other.page.get_by_role("main")
    await expect(profile.get_by_role("heading", level=1, name=name)).to_be_visible()
    await expect(profile).to_contain_text("At sea")
    await expect(profile.locator("img").first).to_be_visible()
    await other.page.go_back()
    await expect(other.messages("Not forever")).to_have_count(1)

    await open_setting(person, "Privacy and data")
    await page.get_by_role("button", name="Create export").click()
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Download").click()
    assert (await download.value).suggested_filename == f"chat-export-{user}.zip"
    await page.get_by_role("button", name="Delete account").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Enter your password to confirm").fill("not this one")
    await dialog.get_by_role("button", name="Delete account").click()
    await expect(dialog.get_by_text("The password is incorrect.")).to_be_visible()
    await dialog.get_by_label("Enter your password to confirm").fill(PASSWORD)
    await dialog.get_by_role("button", name="Delete account").click()

    await expect(page.get_by_text("Your account was deleted.")).to_be_visible()
    assert await page.evaluate(STORES) == []
    await expect(other.page.get_by_text("Not forever")).to_have_count(0)
    for each in (person, other):
        await each.check_is_clean(had_outage=True)
