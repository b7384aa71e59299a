"""Blocking, reporting, muting and banning in the browser, on real servers."""

from __future__ import annotations

import pytest
from playwright.async_api import Locator, expect

from tests.e2e.web_support import PHONE, Arrive, Person, WebStack
from tests.support.rawchat import Failed, RawChat

pytest_plugins = ["tests.e2e.web_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


def _dialog(person: Person, title: str) -> Locator:
    return person.page.get_by_role("dialog", name=title)


async def _press(dialog: Locator, name: str, told: str) -> None:
    """Press a button of a dialog, and wait for what it says then."""
    await dialog.get_by_role("button", name=name, exact=True).click()
    await expect(dialog.get_by_role("status")).to_have_text(told)


async def test_web_user_is_blocked_and_unblocked(web: WebStack, arrive: Arrive) -> None:
    """From the chat; the list of blocked users takes it back; a refusal is said in words."""
    ann, ben = web.new_users(2)
    alice = await arrive(ann, PHONE)
    bob = RawChat(ben, web.stack.port, web.stack.token)
    await bob.start()
    await alice.start_chat(ben)
    await alice.send("Hello")
    await expect(alice.mark("Hello")).to_contain_text("Sent")
    chat = next(iter(await bob.read_list()))

    await alice.page.get_by_role("button", name=f"About {ben}").click()
    about = _dialog(alice, ben)
    await _press(about, "Block", f"{ben} is blocked.")
    with pytest.raises(Failed):
        await bob.ask_send(chat, "r1", "hello?")
    await about.get_by_role("button", name="Close").click()
    await alice.write("Are you there?")
    await alice.page.keyboard.press("Enter")
    await expect(alice.page.locator(".message").last).to_contain_text(
        "You can't message each other"
    )

    await alice.page.get_by_role("button", name="Back to chats").click()
    await alice.page.get_by_role("button", name=f"logged in as {ann}").click()
    await alice.page.get_by_role("button", name="Blocked users").click()
    blocked = _dialog(alice, "Blocked users")
    await _press(blocked, f"Unblock {ben}", f"{ben} is unblocked.")
    await bob.ask_send(chat, "r1", "hello again")

    await expect(blocked).to_contain_text("You haven't blocked anyone.")
    await bob.stop()


async def test_web_owner_mutes_and_bans_and_a_reader_reports(web: WebStack, arrive: Arrive) -> None:
    """A member's dialog has what its reader may do; a report says that it was taken."""
    ann, ben, cat = web.new_users(3)
    bob = RawChat(ben, web.stack.port, web.stack.token)
    await bob.start()
    await web.stack.add_users([ann, cat])
    alice = await arrive(ann)
    cam = RawChat(ann, web.stack.port, web.stack.token, device="phone")
    await cam.start()
    chat = (await cam.ask("create_chat", ref="g", members=[ben, cat], name="Trip"))["chat"]["chat"]
    await bob.say(chat, "Buy my watches")
    await alice.open_chat("Trip")

    message = alice.page.locator(".message").filter(has_text="watches")
    await message.hover()
    await message.get_by_role("button", name="More").click()
    await alice.page.get_by_role("menuitem", name="Report").click()
    report = _dialog(alice, "Report this message?")
    await report.get_by_label("Reason").fill("spam")
    await _press(report, "Report", "Message reported. Thank you.")
    await report.get_by_role("button", name="Close").last.click()

    await alice.page.get_by_role("button", name="Members").click()
    await alice.page.get_by_role("button", name="Group settings").click()
    settings = _dialog(alice, "Group settings")
    await expect(settings).to_contain_text(f"Reported by {ann}: spam")
    await expect(settings.locator("blockquote")).to_have_text(f"{ben}: Buy my watches")
    await _press(settings, f"Resolve report by {ann}", "Report resolved.")
    await expect(settings).to_contain_text("No open reports.")
    await settings.get_by_label("Sending limit", exact=True).select_option("600")
    saving = "Save: sending limit"
    await _press(settings, saving, "Slow mode is on.")
    await bob.ask_send(chat, "s1", "once")
    with pytest.raises(Failed):
        await bob.ask_send(chat, "s2", "too fast")
    await settings.get_by_label("Sending limit", exact=True).select_option("0")
    await _press(settings, saving, "Slow mode is off.")
    await settings.get_by_label("New messages disappear after", exact=True).select_option("604800")
    await _press(
        settings, "Save: new messages disappear after", "New messages will disappear after 7 days."
    )
    await bob.ask_send(chat, "s3", "of this week")
    await bob.expect(lambda me: bool(me.messages(chat)[-1].get("expires_at")))
    await settings.get_by_role("button", name="Close").click()
    told = alice.page.get_by_text("You set new messages to disappear after 7 days", exact=True)
    await expect(told).to_be_visible()

    await alice.page.get_by_role("button", name="Members").click()
    await alice.page.get_by_role("button", name=f"About {ben}").click()
    about = _dialog(alice, ben)
    await _press(about, "Mute indefinitely", f"{ben} is muted.")
    with pytest.raises(Failed):
        await bob.ask_send(chat, "r1", "hello?")
    await _press(about, "Unmute", f"{ben} is unmuted.")
    await bob.ask_send(chat, "r2", "thanks")
    await _press(about, "Ban from group", f"{ben} is banned from the group.")
    with pytest.raises(Failed) as caught:
        await bob.ask("join", chat=chat, ref="j")

    assert caught.value.code == "not_found"
    await about.get_by_role("button", name="Close").click()
    await alice.page.get_by_role("button", name="Members").click()
    await alice.page.get_by_role("button", name="Banned users").click()
    banned = _dialog(alice, "Banned users")
    await _press(banned, f"Unban {ben}", f"{ben} is unbanned.")
    await expect(banned).to_contain_text("No one is banned")
    await cam.ask("invite", chat=chat, ref="i", users=[ben])
    await bob.stop()
    await cam.stop()
