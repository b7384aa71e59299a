"""Profiles, following, posts and likes in the browser, as two people use them."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Locator, expect

from tests.e2e.web_support import PHONE, WIDE, Arrive, Person, WebStack

pytest_plugins = ["tests.e2e.web_fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def open_people(person: Person) -> None:
    """Go from the chats to the timeline."""
    await person.page.get_by_role("button", name="Timeline and people").click()
    await expect(person.page.get_by_role("heading", name="Timeline")).to_be_visible()


async def show(person: Person, user: str) -> None:
    """Find people's profile."""
    await person.page.get_by_label("Find people").fill(user)
    await person.page.get_by_role("button", name="Find", exact=True).click()
    await expect(heading_of(person)).to_have_text(user)


async def post(person: Person, text: str) -> None:
    """Post something."""
    await person.page.get_by_label("New post").fill(text)
    await person.page.get_by_role("button", name="Post", exact=True).click()
    await expect(card(person, text)).to_be_visible()


def heading_of(person: Person) -> Locator:
    """What the pane of people is about."""
    return person.page.locator("#people .people-title")


def card(person: Person, text: str) -> Locator:
    """A post on the page."""
    return person.page.get_by_role("article").filter(has_text=text)


def heart(person: Person, text: str) -> Locator:
    """The button that likes a post."""
    return card(person, text).get_by_role("button", name=re.compile("^Like"))


async def test_post_is_seen_live_by_a_follower_whose_like_the_author_sees_counted(
    web: WebStack, arrive: Arrive
) -> None:
    """Follow, post, see it live, like: the count goes up on both sides; and then they chat."""
    alice_user, bob_user = web.new_users(2)
    alice, bob = await arrive(alice_user, WIDE), await arrive(bob_user, PHONE)
    await open_people(alice)
    await open_people(bob)
    await expect(bob.page.get_by_text("Follow people to see their posts here")).to_be_visible()

    await show(bob, alice_user)
    follow = bob.page.get_by_role("button", name="Follow", exact=True)
    await follow.click()
    following = bob.page.get_by_role("button", name="Following", exact=True)
    await expect(following).to_have_attribute("aria-pressed", "true")
    await expect(bob.page.get_by_role("button", name="1 follower")).to_be_visible()
    await bob.page.get_by_role("button", name="Timeline", exact=True).click()
    await post(alice, "Hello <b>everybody</b>")

    await expect(card(bob, "Hello <b>everybody</b>")).to_be_visible()
    like = heart(bob, "Hello")
    await like.click()
    await expect(like).to_have_attribute("aria-pressed", "true")
    await expect(like).to_have_accessible_name("Like, 1 like")
    await expect(heart(alice, "Hello")).to_have_accessible_name("Like, 1 like")
    await expect(heart(alice, "Hello")).to_have_attribute("aria-pressed", "false")
    await like.click()
    await expect(like).to_have_accessible_name("Like, 0 likes")

    await show(alice, bob_user)
    await expect(alice.page.get_by_text("Follows you")).to_be_visible()
    await alice.page.get_by_role("button", name="Message", exact=True).click()
    await expect(alice.title).to_have_text(bob_user)
    await alice.send("Thank you for following")
    await bob.page.get_by_role("button", name="Back to chats").click()
    await bob.open_chat(alice_user)
    await bob.expect_bodies("Thank you for following")
    for person in (alice, bob):
        await person.check_is_clean()


async def test_own_posts_are_deleted_and_addresses_lead_to_profiles(
    web: WebStack, arrive: Arrive
) -> None:
    """Reload, Back and an address that was typed; nothing is wider than a phone; lists open."""
    alice_user, bob_user = web.new_users(2)
    alice, bob = await arrive(alice_user, PHONE), await arrive(bob_user, PHONE)
    await alice.page.goto(f"{web.url}#/people/{alice_user}")
    await post(alice, "w" * 300)
    await post(alice, "second")
    await alice.page.reload()
    await expect(card(alice, "second")).to_be_visible()
    assert await alice.page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]

    await card(alice, "second").get_by_role("button", name="Delete this post").click()
    await expect(card(alice, "second")).to_have_count(0)
    await bob.page.goto(f"{web.url}#/people/{alice_user}")
    await expect(bob.page.get_by_role("article")).to_have_count(1)
    await expect(card(bob, "www").get_by_role("button", name="Delete this post")).to_be_hidden()
    await bob.page.get_by_role("button", name="Follow", exact=True).click()
    await bob.page.get_by_role("button", name="1 follower").click()
    dialog = bob.page.get_by_role("dialog", name="Followers")
    await dialog.get_by_role("button", name=bob_user).click()
    await expect(heading_of(bob)).to_have_text(bob_user)
    await bob.page.go_back()
    await expect(heading_of(bob)).to_have_text(alice_user)
    await bob.page.goto(f"{web.url}#/people/nobody-{alice_user}")
    await expect(bob.page.get_by_role("alert")).to_have_text("User or post not found.")
    await alice.check_is_clean()


async def test_saved_posts_and_messages_are_listed_for_oneself(
    web: WebStack, arrive: Arrive
) -> None:
    """Saved in the timeline and in a chat's message menu; removed in the list."""
    alice_user, bob_user = web.new_users(2)
    alice, bob = await arrive(alice_user, WIDE), await arrive(bob_user, PHONE)
    await bob.page.goto(f"{web.url}#/people/{bob_user}")
    await post(bob, "worth keeping")
    await alice.page.goto(f"{web.url}#/people/{bob_user}")
    save = card(alice, "worth keeping").get_by_role("button", name="Save", exact=True)
    await save.click()
    await expect(save).to_have_attribute("aria-pressed", "true")
    await alice.page.get_by_role("button", name="Message", exact=True).click()
    await expect(alice.title).to_have_text(bob_user)
    await alice.send("do not forget")
    await alice.expect_bodies("do not forget")
    message = alice.page.locator(".message").filter(has_text="do not forget")
    await message.focus()
    await message.get_by_role("button", name="More").press("Enter")
    await alice.page.get_by_role("menuitem", name="Save", exact=True).press("Enter")
    await expect(alice.page.get_by_text("Message saved.")).to_be_visible()

    await alice.page.goto(f"{web.url}#/people")
    await alice.page.get_by_role("button", name="Saved", exact=True).click()
    await expect(heading_of(alice)).to_have_text("Saved")
    saved = alice.page.get_by_role("region", name="Saved messages")
    await expect(saved.get_by_text("do not forget")).to_be_visible()
    kept = card(alice, "worth keeping")
    await expect(kept).to_be_visible()
    await kept.get_by_role("button", name="Save", exact=True).click()
    await saved.get_by_role("button", name="Remove from saved messages").click()
    await alice.page.reload()
    await expect(alice.page.get_by_text("No saved posts.")).to_be_visible()
    await expect(alice.page.get_by_text("No saved messages.")).to_be_visible()
    await alice.check_is_clean()
