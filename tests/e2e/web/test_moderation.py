"""Invitations, reports, mutes, bans and blocks in the web client, seen by both sides."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from playwright.async_api import Locator, Page, Route, expect

from tests.e2e.web.client_support import WORKER_READY, Visit, Visitor
from tests.e2e.web.stack_support import PATIENCE_MS, PHONE, WIDE, WebStack
from tests.support.rawchat import Failed


async def choose_for(page: Page, user: str, action: str) -> None:
    await page.get_by_role("button", name=f"Actions for {user}").click()
    await page.get_by_role("menuitem", name=action, exact=True).click()


async def invite(web: WebStack, inviter: str, user: str, *names: str) -> None:
    """Create groups and invite a user to them."""
    api = web.stack.start_api(CHAT_CHATS_INVITATIONS="ask_strangers")
    headers = {"Authorization": f"Bearer {web.stack.token(inviter)}"}
    async with httpx.AsyncClient(
        base_url=api.endpoint, headers=headers, timeout=PATIENCE_MS / 1000
    ) as client:
        for name in names:
            made = await client.post("/v1/chats", json={"members": [user], "name": name})
            assert made.json()["invited"] == [user], made.text


def list_invitations(visitor: Visitor) -> Locator:
    return visitor.page.get_by_role("list", name="Invitations").get_by_role("listitem")


async def test_invitation_is_accepted_and_another_declined(web: WebStack, visit: Visit) -> None:
    """Invitations appear at once, not in the chat list, and disappear after the response."""
    ann, ben = web.new_users(2)
    alice = await visit(ann, PHONE)
    await invite(web, ben, ann, "Sailing", "Spam")

    invitations = list_invitations(alice)
    await expect(invitations).to_have_count(2)
    await expect(invitations.first).to_contain_text(f"{ben} invited you")
    await expect(alice.row("Sailing")).to_have_count(0)
    await invitations.filter(has_text="Spam").get_by_role("button", name="Decline").click()
    await expect(invitations).to_have_count(1)
    await invitations.filter(has_text="Sailing").get_by_role("button", name="Accept").click()
    await expect(alice.field).to_be_visible()
    await alice.send("Ahoy")
    await alice.page.get_by_role("button", name="Back", exact=True).click()

    await expect(alice.row("Sailing")).to_contain_text("Ahoy")
    await expect(invitations).to_have_count(0)
    await expect(alice.page.get_by_text("Spam")).to_have_count(0)
    await alice.check_is_clean()


async def test_invitations_are_loaded_when_a_client_that_started_offline_connects(
    web: WebStack, visit: Visit
) -> None:
    ann, ben = web.new_users(2)
    alice = await visit(ann)
    await alice.page.evaluate(WORKER_READY)
    await alice.context.set_offline(True)
    await alice.page.reload()
    await expect(alice.banner).to_be_visible()
    await invite(web, ben, ann, "Sailing")
    await alice.context.set_offline(False)

    await expect(list_invitations(alice)).to_have_count(1)
    await alice.check_is_clean(had_outage=True)


async def test_accepted_invitation_is_not_shown_again_by_a_slow_request(
    web: WebStack, visit: Visit
) -> None:
    """The list of invitations is requested before the user accepts, and arrives afterward."""
    ann, ben = web.new_users(2)
    alice = await visit(ann, PHONE)
    await invite(web, ben, ann, "Sailing")
    invitations = list_invitations(alice)
    await expect(invitations).to_have_count(1)
    is_read, may_arrive, has_arrived = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def delay(route: Route) -> None:
        response = await route.fetch()
        is_read.set()
        await may_arrive.wait()
        await route.fulfill(response=response)
        has_arrived.set()

    await alice.page.route("**/v1/invitations?*", delay, times=1)
    async with asyncio.timeout(PATIENCE_MS / 1000):
        await alice.page.evaluate("dispatchEvent(new Event('focus'))")
        await is_read.wait()
        await invitations.get_by_role("button", name="Accept").click()
        await expect(alice.field).to_be_visible()
        may_arrive.set()
        await has_arrived.wait()
    await alice.send("Ahoy")
    await alice.page.get_by_role("button", name="Back", exact=True).click()

    await expect(alice.row("Sailing")).to_contain_text("Ahoy")
    await expect(invitations).to_have_count(0)
    await alice.check_is_clean()


async def test_owner_and_member_see_reports_limits_mutes_and_bans(
    web: WebStack, visit: Visit
) -> None:
    """A member reports a message. The owner's settings take effect in the member's window."""
    ann, ben, cat = web.new_users(3)
    async with web.stack.chat_of(ben) as bob:
        await web.stack.add_users([ann, cat])
        async with web.stack.chat_of(ann, device="phone") as phone:
            fields = {"ref": "g", "members": [ben, cat], "name": "Trip"}
            chat = (await phone.request("create_chat", **fields))["chat"]["chat"]
        await bob.send(chat, "Buy my watches")
        owner, member = await visit(ann), await visit(cat)
        await member.open_chat("Trip")
        await member.choose("watches", "Report")
        dialog = member.page.get_by_role("dialog", name="Report message")
        await dialog.get_by_label("Reason (optional)").fill("spam")
        await dialog.get_by_role("button", name="Report").click()
        await expect(member.page.get_by_text("Reported", exact=True)).to_be_visible()

        page = owner.page
        await page.goto(f"{owner.url}chats/{chat}/details")
        await page.get_by_role("tab", name="Manage").click()
        report = page.get_by_role("article", name=f"Reported by {cat}")
        await expect(report).to_contain_text("spam")
        await expect(report).to_contain_text("Buy my watches")
        await page.get_by_label("Slow mode").select_option("600")
        await expect(member.field).to_have_attribute(
            "placeholder", "Slow mode: one message every 600 s"
        )
        await bob.send_unrecorded(chat, "s1", "once")
        with pytest.raises(Failed):
            await bob.send_unrecorded(chat, "s2", "too fast")
        await page.get_by_label("Slow mode").select_option("0")
        await expect(member.field).to_have_attribute("placeholder", "Write a message")
        await page.get_by_label("Disappearing messages").select_option("604800")
        await expect(page.get_by_text("Saved.").last).to_be_visible()
        await expect(
            member.page.get_by_text(f"{ann} changed the group settings").nth(2)
        ).to_be_visible()
        await bob.send_unrecorded(chat, "s3", "of this week")
        await bob.expect(lambda me: bool(me.messages(chat)[-1].get("expires_at")))

        await page.get_by_role("tab", name="Members").click()
        await choose_for(page, cat, "Mute indefinitely")
        await expect(member.page.get_by_text("An admin has muted you")).to_be_visible()
        await choose_for(page, cat, "Unmute")
        await member.send("thanks")
        await choose_for(page, cat, "Ban from group")
        await page.get_by_role("dialog").get_by_role("button", name="Ban from group").click()
        await expect(member.page.get_by_text("You are no longer a member")).to_be_visible()
        await expect(
            page.get_by_text(f"{ann} banned {cat}").or_(page.get_by_text(f"You banned {cat}"))
        ).to_be_visible()
        for person in (owner, member):
            await person.check_is_clean()


async def test_open_menu_stays_in_the_window_when_it_grows(web: WebStack, visit: Visit) -> None:
    """The open menu of a member who is unmuted elsewhere grows and stays in the window."""
    ann, ben = web.new_users(2)
    owner = await visit(ann)
    async with web.stack.chat_of(ann, device="phone") as phone:
        await web.stack.add_users([ben])
        chat = await phone.create_group([ben], name="Trip")
        await phone.request("mute_member", ref="m", chat=chat, user=ben)
        page = owner.page
        await page.goto(f"{owner.url}chats/{chat}/details")
        await page.get_by_role("tab", name="Members").click()
        button = page.get_by_role("button", name=f"Actions for {ben}")
        await button.click()
        unmute = page.get_by_role("menuitem", name="Unmute")
        await expect(unmute).to_be_visible()
        menu = await page.locator("[popover]:popover-open").bounding_box()
        await page.keyboard.press("Escape")
        row = await button.bounding_box()
        assert menu is not None
        assert row is not None
        # The window has just enough room for the menu below the button.
        height = row["y"] + row["height"] + menu["height"] + 20
        await page.set_viewport_size({"width": WIDE[0], "height": int(height)})
        await button.click()
        await expect(unmute).to_be_in_viewport(ratio=1)

        await phone.request("mute_member", ref="u", chat=chat, user=ben, mute_s=0)

        ban = page.get_by_role("menuitem", name="Ban from group", exact=True)
        await expect(unmute).to_have_count(0)
        await expect(ban).to_be_in_viewport(ratio=1)
        await page.keyboard.press("End")
        await expect(ban).to_be_focused()


async def test_blocked_user_cannot_write_until_unblocked(web: WebStack, visit: Visit) -> None:
    """A message to a blocked user is refused with a reason. A second attempt sends it."""
    ann, ben = web.new_users(2)
    alice = await visit(ann)
    async with web.stack.chat_of(ben) as bob:
        chat = await bob.open_direct(ann)
        await bob.send(chat, "Hello")
        await alice.open_chat(ben)
        await alice.page.get_by_role("main").get_by_role("link", name=ben).first.click()
        await alice.page.get_by_role("button", name="More actions").click()
        await alice.page.get_by_role("menuitem", name="Block").click()
        await alice.page.get_by_role("dialog").get_by_role("button", name="Block").click()
        await expect(alice.page.get_by_text("You blocked this user.")).to_be_visible()
        with pytest.raises(Failed):
            await bob.send_unrecorded(chat, "r1", "hello?")
        await alice.page.get_by_role("link", name="Chats").first.click()
        await alice.open_chat(ben)
        await alice.send("Are you there?")
        failed = alice.messages("Are you there?")
        await expect(failed.get_by_role("alert")).to_contain_text("Not sent:")

        await alice.page.get_by_role("main").get_by_role("link", name=ben).first.click()
        await expect(alice.page.get_by_text("You blocked this user.")).to_be_visible()
        await alice.page.get_by_role("button", name="Unblock").click()
        await expect(alice.page.get_by_role("button", name="More actions")).to_be_visible()
        await bob.send_unrecorded(chat, "r2", "hello again")
        await alice.page.get_by_role("link", name="Chats").first.click()
        await alice.open_chat(ben)
        await failed.get_by_role("button", name="Try again").click()
        await expect(alice.mark("Are you there?", "Sent")).to_be_visible()
        await alice.expect_texts("Hello", "hello again", "Are you there?")
    await alice.check_is_clean(had_outage=True)  # a blocked user has no profile
