"""The browser client when things break: nothing is lost, nothing comes twice, one is told."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import expect

from tests.e2e.web_support import INBOX_MAX, Arrive, Person, WebStack
from tests.support.servers.processes import eventually

pytest_plugins = ["tests.e2e.web_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_web_away_for_a_while_catches_up_once_and_in_order(
    web: WebStack, arrive: Arrive
) -> None:
    """Who was cut off gets what was missed and sends what was written, each message once."""
    ann, ben = web.new_users(2)
    alice, bob = await arrive(ann), await arrive(ben, is_far=True)
    await alice.start_chat(ben)
    await alice.send("before")
    await bob.open_chat(ann)
    await bob.expect_bodies("before")

    web.link.refuse()
    await expect(bob.banner).to_contain_text("New messages will be sent once you're back online.")
    missed = [f"missed {number}" for number in range(1, 8)]
    await alice.send(*missed)
    await bob.send("written offline", "and this too")
    await expect(bob.mark("written offline")).to_have_text("Sending")
    await expect(alice.mark(missed[-1])).to_have_text("Sent and stored")  # so they come before his
    await bob.banner.get_by_role("button", name="Try now").click()
    web.link.heal()
    await bob.notice_network()

    everything = ["before", *missed, "written offline", "and this too"]
    for person in (alice, bob):
        await person.expect_bodies(*everything)
    await expect(bob.banner).to_have_count(0)
    await expect(bob.mark("and this too")).to_have_text("Read")
    await alice.check_is_clean()
    await bob.check_is_clean(had_outage=True)


async def test_web_chat_that_is_not_open_counts_what_came_while_away(
    web: WebStack, arrive: Arrive
) -> None:
    """The unread count after an outage includes the messages that came in it."""
    ann, ben = web.new_users(2)
    alice, bob = await arrive(ann), await arrive(ben, is_far=True)
    await alice.start_chat(ben)
    await alice.send("zero")
    await expect(bob.item(ann)).to_be_visible()

    web.link.refuse()
    await expect(bob.banner).to_be_visible()
    await alice.send("one", "two", "three")
    web.link.heal()
    await bob.notice_network()

    await expect(bob.badge(ann)).to_have_text("44 unread messages")
    await bob.open_chat(ann)
    await bob.expect_bodies("zero", "one", "two", "three")


async def test_web_away_for_long_starts_again_from_a_snapshot(
    web: WebStack, arrive: Arrive
) -> None:
    """Who missed more than the inbox holds gets the newest state at once."""
    ann, ben = web.new_users(2)
    bob = await arrive(ben, is_far=True)
    async with web.stack.chat_of(ann) as writer:
        chat = (await writer.ask("open_direct", user=ben))["chat"]["chat"]
        await writer.say(chat, "before")
        await bob.open_chat(ann)
        await bob.expect_bodies("before")

        web.link.refuse()
        await expect(bob.banner).to_be_visible()
        missed = [f"missed {number}" for number in range(1, 2 * INBOX_MAX)]
        for text in missed:
            await writer.say(chat, text)
        await bob.send("and mine")
        web.link.heal()
        await bob.notice_network()

        await expect(bob.bodies.last).to_have_text("and mine")
        await expect(bob.page.locator(".row-beginning")).to_have_count(1)
        await bob.expect_bodies("before", *missed, "and mine")
        await writer.expect_frame("event", kind="message", cs=len(missed) + 2)
    await bob.check_is_clean(had_outage=True)


async def test_web_duplicated_window_becomes_a_device_of_its_own(
    web: WebStack, arrive: Arrive
) -> None:
    """A copied window has the same device id; both go on, neither pushes the other out for ever."""
    ann, ben = web.new_users(2)
    alice, bob = await arrive(ann), await arrive(ben)
    await alice.start_chat(ben)
    await bob.start_chat(ann)

    async with bob.context.expect_page() as opening:
        await bob.page.evaluate("window.open(location.href)")
    twin = Person(ben, bob.context, await opening.value, [])
    await alice.send("to both windows")

    for window in (bob, twin):
        await window.expect_bodies("to both windows")
        await expect(window.banner).to_have_count(0)

    async def are_two() -> bool:
        devices = {
            await window.page.evaluate("sessionStorage['chat.device']") for window in (bob, twin)
        }
        return len(devices) == 2

    await eventually(are_two, what="each window is a device of its own")


async def test_web_silent_network_is_noticed_when_the_machine_wakes(
    web: WebStack, arrive: Arrive
) -> None:
    """A connection that only looks alive is found out within seconds of coming back online."""
    ann, ben = web.new_users(2)
    alice, bob = await arrive(ann), await arrive(ben, is_far=True)
    await alice.start_chat(ben)
    await alice.send("zero")
    await expect(bob.item(ann)).to_be_visible()

    web.link.blackhole("up", "down")
    await alice.send("into the void?")
    await expect(alice.mark("into the void")).to_have_text("Sent and stored")
    web.link.heal()
    await bob.notice_network()

    await expect(bob.badge(ann)).to_have_text("22 unread messages")


async def test_web_gateway_killed_while_sending_sends_everything_once(
    web: WebStack, arrive: Arrive
) -> None:
    """A gateway that dies in the middle of a burst costs nothing and doubles nothing."""
    ann, ben = web.new_users(2)
    alice, bob = await arrive(ann), await arrive(ben)
    await alice.start_chat(ben)
    await bob.start_chat(ann)
    texts = [f"burst {number}" for number in range(1, 31)]

    writing = asyncio.create_task(alice.send(*texts))
    await expect(bob.bodies.filter(has_text="burst 5")).to_be_visible()
    web.kill_gateway()
    await writing
    await expect(alice.banner).to_be_visible()
    web.start_gateway()
    for person in (alice, bob):
        await person.notice_network()

    for person in (alice, bob):
        await person.expect_bodies(*texts)
        await expect(person.banner).to_have_count(0)
    await expect(alice.mark(texts[-1])).to_have_text("Read")
    chat = alice.page.url.rpartition("/")[2]

    async def is_stored() -> bool:
        return len(await web.stack.read_warm(chat)) >= len(texts)

    await eventually(is_stored, 30, "the worker has stored what was sent")
    assert [row.body for row in await web.stack.read_warm(chat)] == texts
    for person in (alice, bob):
        await person.check_is_clean(had_outage=True)


async def test_web_message_written_before_a_reload_without_network_is_sent_after_it(
    web: WebStack, arrive: Arrive
) -> None:
    """The outbox outlives the page."""
    ann, ben = web.new_users(2)
    alice, bob = await arrive(ann), await arrive(ben, is_far=True)
    await alice.start_chat(ben)
    await bob.start_chat(ann)
    web.link.refuse()
    await expect(bob.banner).to_be_visible()
    await bob.send("do not forget me")

    web.link.heal()
    await bob.page.reload()

    await alice.expect_bodies("do not forget me")
    await bob.expect_bodies("do not forget me")


async def test_web_token_that_does_not_hold_leads_back_to_the_login(
    web: WebStack, arrive: Arrive
) -> None:
    """A wrong token gets a sentence, not an endless try."""
    alice = await arrive(web.new_users(1)[0])
    await alice.page.get_by_role("button", name="Account menu").click()
    await alice.page.get_by_role("button", name="Log out").click()

    await alice.page.get_by_text("Use a token instead").click()
    await alice.page.get_by_label("Access token").fill("this is no token")
    await alice.page.get_by_role("button", name="Log in", exact=True).click()
    await expect(alice.page.get_by_text("The token was not accepted")).to_be_visible()

    await alice.page.get_by_text("Use a token instead").click()
    await alice.page.get_by_label("Access token").fill(web.stack.token(alice.user))
    await alice.page.get_by_role("button", name="Log in", exact=True).click()
    await alice.wait_for_list()
    await alice.check_is_clean()
