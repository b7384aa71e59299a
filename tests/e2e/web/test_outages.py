"""The web client during server and network outages: no message is lost or repeated."""

from __future__ import annotations

import asyncio

from playwright.async_api import expect

from tests.e2e.web.client_support import Visit
from tests.e2e.web.conversation_support import fill_chat
from tests.e2e.web.stack_support import INBOX_MAX, WebStack
from tests.support.servers.processes import eventually


async def test_messages_missed_in_an_outage_arrive_once_and_in_order(
    web: WebStack, visit: Visit
) -> None:
    """Missed messages, offline messages, unread counts and a half-open connection."""
    ann, ben, cal = web.new_users(3)
    alice, bob = await visit(ann), await visit(ben, is_far=True)
    async with web.stack.chat_of(cal) as carol:
        other = await carol.open_direct(ben)
        await carol.send(other, "zero")
        await alice.start_chat(ben)
        await alice.send("before")
        await bob.open_chat(ann)
        await expect(alice.mark("before", "Read")).to_be_visible()

        web.link.refuse()
        await expect(bob.banner).to_be_visible()
        missed = [f"missed {number}" for number in range(1, 8)]
        await alice.send(*missed)
        for text in ("one", "two", "three"):
            await carol.send(other, text)
        await bob.send("written offline", "and this too")
        await expect(bob.mark("written offline", "Sending")).to_be_visible()
        await expect(alice.mark(missed[-1], "Sent")).to_be_visible()  # so that they get lower seqs
        web.link.end_faults()
        await bob.report_online()
        await expect(bob.row(cal)).to_contain_text("4 unread messages")

        everything = ["before", *missed, "written offline", "and this too"]
        for person in (alice, bob):
            await person.expect_texts(*everything)
        await expect(bob.banner).to_have_count(0)
        web.link.blackhole("up", "down")
        await carol.send(other, "while the link drops bytes")
        web.link.end_faults()
        await bob.report_online()
        await expect(bob.row(cal)).to_contain_text("5 unread messages")
        await bob.open_chat(cal)
        await bob.expect_texts("zero", "one", "two", "three", "while the link drops bytes")
    await alice.check_is_clean()
    await bob.check_is_clean(had_outage=True)


async def test_long_outage_restarts_from_a_snapshot(web: WebStack, visit: Visit) -> None:
    """A device that missed more events than the inbox holds gets each message once."""
    ann, ben = web.new_users(2)
    bob = await visit(ben, is_far=True)
    async with web.stack.chat_of(ann) as writer:
        chat = await writer.open_direct(ben)
        await writer.send(chat, "before")
        await bob.open_chat(ann)
        await expect(bob.messages("before")).to_have_count(1)

        web.link.refuse()
        await expect(bob.banner).to_be_visible()
        missed = [f"missed {number}" for number in range(1, 2 * INBOX_MAX)]
        await fill_chat(writer, chat, len(missed), lambda number: missed[number - 1])
        await bob.send("and mine")
        web.link.end_faults()
        await bob.report_online()

        await writer.expect_frame("event", kind="message", cs=len(missed) + 2)
        await bob.expect_texts("before", *missed, "and mine")
    await bob.check_is_clean(had_outage=True)


async def test_gateway_killed_in_a_burst_sends_everything_once(web: WebStack, visit: Visit) -> None:
    """Both windows and DynamoDB have each message once, and the draft is kept."""
    ann, ben = web.new_users(2)
    alice, bob = await visit(ann), await visit(ben)
    await alice.start_chat(ben)
    await bob.start_chat(ann)
    texts = [f"burst {number:02}" for number in range(1, 31)]

    sending = asyncio.create_task(alice.send(*texts))
    await expect(bob.messages("burst 05")).to_have_count(1)
    web.kill_gateway()
    await sending
    await alice.field.fill("a draft")
    await expect(alice.banner).to_be_visible()
    web.start_gateway()
    for person in (alice, bob):
        await person.report_online()

    await expect(alice.mark(texts[-1], "Read")).to_be_visible()
    for person in (alice, bob):
        await expect(person.banner).to_have_count(0)
        await person.expect_texts(*texts)
    await expect(alice.field).to_have_value("a draft")
    chat = alice.page.url.rpartition("/")[2]

    async def is_stored() -> bool:
        return len(await web.stack.read_warm(chat)) >= len(texts)

    await eventually(is_stored, what="all messages are stored")
    assert [row.body for row in await web.stack.read_warm(chat)] == texts
    for person in (alice, bob):
        await person.check_is_clean(had_outage=True)


async def test_refused_token_shows_the_login_page(web: WebStack, visit: Visit) -> None:
    """An invalid token causes an error message; a valid token works afterwards."""
    (ann,) = web.new_users(1)
    alice = await visit(ann, is_logged_in=False)
    page = alice.page
    await page.goto(alice.url)

    await page.get_by_text("Use an access token").click()
    await page.get_by_label("Access token").fill("this is no token")
    await page.get_by_role("button", name="Log in", exact=True).last.click()
    await expect(page.get_by_role("alert")).to_contain_text("The token was not accepted")
    await page.get_by_text("Use an access token").click()
    await page.get_by_label("Access token").fill(web.stack.token(ann))
    await page.get_by_role("button", name="Log in", exact=True).last.click()

    await alice.wait_for_list()
    await alice.check_is_clean()
