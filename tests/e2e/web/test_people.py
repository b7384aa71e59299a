"""People, profiles and the timeline of the web client, with two users."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.e2e.web.client_support import Visit
from tests.e2e.web.pages_support import SMALL, check_page, make_picture, open_caller, open_page
from tests.e2e.web.stack_support import WebStack

# Advances the page's clock beyond the cache time of profiles.
ADVANCE_CLOCK = "(() => { const now = Date.now; Date.now = () => now() + 61_000; })()"
# Makes the refresh of a visible window run each second; other timers are unchanged.
FAST_REFRESH = """
const start = window.setInterval.bind(window);
window.setInterval = (run, ms) => start(run, ms === 600_000 ? 1_000 : ms);
"""


def post_of(page: Page, text: str) -> Locator:
    return page.get_by_role("article").filter(has_text=text)


async def write_post(page: Page, text: str) -> None:
    field = page.get_by_role("textbox", name="New post")
    await field.fill(text)
    await page.get_by_role("button", name="Post", exact=True).click()
    await expect(field).to_have_value("")


async def test_post_reaches_a_follower_who_likes_it_and_the_author_sees_the_count(
    web: WebStack, browser: Browser
) -> None:
    """Find, follow, post, load new posts, like, list likes, edit, delete and send a message."""
    ann, ben = web.new_users(2)
    async with (
        open_page(web, browser, ann, "timeline") as alice,
        open_page(web, browser, ben, "people", size=SMALL) as bob,
    ):
        await bob.get_by_label("Find people").fill(ann)
        await bob.get_by_label("Find people").press("Enter")
        await bob.get_by_role("button", name="Follow", exact=True).click()
        await expect(bob.get_by_role("button", name="1 follower")).to_be_visible()
        await bob.goto(f"{web.url}timeline")
        await write_post(bob, "My own")
        await write_post(alice, "Hello **everybody** <b>!</b>")
        await bob.get_by_role("button", name="1 new post").click()

        seen = post_of(bob, "Hello everybody <b>!</b>")
        await expect(seen.locator("strong")).to_have_text("everybody")
        like = seen.get_by_role("button", name=re.compile("^Like"))
        await like.click()
        await expect(like).to_have_attribute("aria-pressed", "true")
        own = post_of(alice, "Hello")
        await own.get_by_role("button", name="Show 1 like").click()
        await expect(alice.get_by_role("dialog").get_by_role("link")).to_contain_text(ben)
        await alice.keyboard.press("Escape")
        await own.get_by_role("button", name="Actions for this post").click()
        await alice.get_by_role("menuitem", name="Edit").click()
        await alice.get_by_role("dialog").get_by_label("New post").fill("Better")
        await alice.get_by_role("dialog").get_by_role("button", name="Save", exact=True).click()
        await expect(post_of(alice, "Better")).to_contain_text("edited")
        await expect(post_of(bob, "Better")).to_be_visible()

        await post_of(alice, "Better").get_by_role("button", name="Actions for this post").click()
        await alice.get_by_role("menuitem", name="Delete").click()
        await alice.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(post_of(alice, "Better")).to_have_count(0)
        await expect(post_of(bob, "Better")).to_have_count(0)
        await post_of(bob, "My own").get_by_role("link", name=ben).click()
        await expect(bob.get_by_role("heading", level=1, name=ben)).to_be_visible()
        await bob.goto(f"{web.url}people/nobody-{ann}")
        await expect(bob.get_by_text("There is no user with this username.")).to_be_visible()
        await bob.goto(f"{web.url}people/{ann}")
        await bob.get_by_role("button", name="1 follower").click()
        await bob.get_by_role("dialog").get_by_role("link", name=ben).click()
        await expect(bob.get_by_role("heading", level=1, name=ben)).to_be_visible()
        await bob.go_back()
        await bob.get_by_role("button", name="Message", exact=True).click()
        await expect(bob).to_have_url(re.compile("/chats/d-"))


async def test_post_with_a_picture_shows_it_in_the_feed_and_large(
    web: WebStack, browser: Browser
) -> None:
    """A picture is uploaded with a post, shown in it, and opened in a dialog."""
    (ann,) = web.new_users(1)
    async with open_page(web, browser, ann, "timeline") as page:
        picture = {"name": "a.png", "mimeType": "image/png", "buffer": make_picture("red")}
        await page.locator("input[type=file]").set_input_files([picture])
        await expect(page.get_by_role("img", name="a.png")).to_be_visible()
        await write_post(page, "Look")
        shown = post_of(page, "Look").get_by_role("button", name=f"Picture by {ann}")
        await expect(shown.locator("img")).to_be_visible()
        await check_page(page)
        await shown.click()
        await expect(page.get_by_role("dialog").get_by_role("img")).to_be_visible()


async def test_saved_posts_and_messages_are_listed_opened_and_removed(
    web: WebStack, browser: Browser
) -> None:
    """Saved items are on a page that only the user can see."""
    ann, ben = web.new_users(2)
    async with open_caller(web, ann) as a, open_caller(web, ben) as b:
        chat = await a.open_direct(ben)
        await b.send(chat, "Keep this")
        await a.post("Worth keeping")

    async with open_page(web, browser, ann, f"chats/{chat}") as page:
        await page.get_by_role("article").filter(has_text="Keep this").focus()
        await page.keyboard.press("Enter")
        await page.get_by_role("menuitem", name="Save", exact=True).press("Enter")
        await expect(page.get_by_text("Message saved.")).to_be_visible()
        await page.get_by_role("link", name="Timeline").click()
        save = post_of(page, "Worth keeping").get_by_role("button", name="Save", exact=True)
        await save.click()
        await expect(save).to_have_attribute("aria-pressed", "true")
        await page.get_by_role("button", name="Saved", exact=True).click()
        await expect(page.get_by_role("link").filter(has_text="Keep this")).to_be_visible()
        await check_page(page)
        await page.get_by_role("tab", name="Posts").click()
        await expect(post_of(page, "Worth keeping")).to_be_visible()
        await page.get_by_role("tab", name="Messages").click()
        await page.get_by_role("button", name="Remove from saved").click()
        await expect(page.get_by_text("No saved messages")).to_be_visible()


async def test_block_is_confirmed_and_shown_on_the_profile(web: WebStack, browser: Browser) -> None:
    """A blocked user's profile shows the block; unblocking is one step."""
    ann, ben = web.new_users(2)
    async with open_page(web, browser, ann, f"people/{ben}") as page:
        await page.get_by_role("button", name="More actions").click()
        await page.get_by_role("menuitem", name="Block").click()
        await page.get_by_role("dialog").get_by_role("button", name="Block").click()
        await expect(page.get_by_text("You blocked this user.")).to_be_visible()
        await page.get_by_role("button", name="More actions").click()
        await page.get_by_role("menuitem", name="Unblock").click()
        await expect(page.get_by_text("You blocked this user.")).to_have_count(0)


@pytest.mark.parametrize("size", [(1280, 800), SMALL])
async def test_people_profile_and_timeline_pass_axe(
    web: WebStack, browser: Browser, size: tuple[int, int]
) -> None:
    """The pages pass in light and dark mode, wide and narrow."""
    ann, ben = web.new_users(2)
    async with open_caller(web, ann) as a, open_caller(web, ben) as b:
        await a.send(await a.open_direct(ben), "Hello")
        await a.call("PUT", f"/v1/me/following/{ben}")
        await b.call(
            "PATCH", "/v1/me", {"name": "Ben Brown", "about": "Gateways", "discoverable": True}
        )
        await b.post("A post with `code`, a list\n\n- one\n- two")

    async with open_page(web, browser, ann, "people", size=size) as page:
        await expect(page.get_by_role("link").filter(has_text="Ben Brown")).to_be_visible()
        await check_page(page)
        await page.get_by_role("link").filter(has_text="Ben Brown").click()
        await expect(post_of(page, "A post with")).to_be_visible()
        await check_page(page)
        await page.goto(f"{web.url}timeline")
        await expect(post_of(page, "A post with")).to_be_visible()
        await check_page(page)


async def test_discoverable_user_is_found_by_name(web: WebStack, browser: Browser) -> None:
    """Discovery is turned on; the user is found in two places; then it is turned off."""
    ann, ben, cy = web.new_users(3)
    async with open_caller(web, ann) as caller:
        await caller.call("PATCH", "/v1/me", {"name": "Zoë Findable"})
    async with open_caller(web, ben) as caller:
        group = await caller.create_group("Friends", cy)
    async with (
        open_page(web, browser, ann, "settings/privacy") as alice,
        open_page(web, browser, ben, "people", size=SMALL) as bob,
    ):
        field = bob.get_by_label("Find people")
        await field.fill("zoe f")
        await expect(bob.get_by_text("No matching people")).to_be_visible()

        switch = alice.get_by_role("switch", name="Let people find me by name")
        await switch.check()
        await expect(switch).to_be_enabled()
        await check_page(alice)
        await alice.reload()
        await expect(switch).to_be_checked()

        await field.fill("zoe fi")
        others = bob.get_by_role("list", name="Other people")
        await expect(others.get_by_role("listitem")).to_have_count(1)
        await expect(others).to_contain_text(f"@{ann}")
        await check_page(bob)
        await bob.goto(f"{web.url}chats")
        await bob.get_by_role("button", name="New chat").first.click()
        await bob.get_by_role("menuitem", name="New chat").click()
        await bob.get_by_label("Username").fill("findable")
        await check_page(bob)
        await bob.get_by_role("button", name=re.compile("Zoë Findable")).click()
        await bob.get_by_role("textbox", name="Message").fill("Found you")
        await bob.keyboard.press("Enter")
        await expect(bob.get_by_role("log")).to_contain_text("Found you")

        await bob.goto(f"{web.url}chats/{group}/details")
        await bob.get_by_role("button", name="Add", exact=True).click()
        await bob.get_by_label("Usernames").fill("user-x, zoe")
        await bob.get_by_role("button", name=re.compile("Zoë Findable")).click()
        await expect(bob.get_by_label("Usernames")).to_have_value(f"user-x, {ann} ")

        await switch.uncheck()
        await expect(switch).to_be_enabled()
        await bob.goto(f"{web.url}people")
        await field.fill("findab")
        await expect(bob.get_by_role("list", name="Contacts")).to_contain_text("Zoë Findable")
        await expect(others).to_have_count(0)


async def test_changed_name_and_picture_reach_open_windows(web: WebStack, visit: Visit) -> None:
    """Open windows update on focus, after a message, and on the user's other device."""
    ann, ben = web.new_users(2)
    alice, bob, other = await visit(ann), await visit(ben), await visit(ben)
    await bob.start_chat(ann)
    await bob.send("hello")
    await expect(alice.row(ben)).to_be_visible()
    for person in (bob, other):
        await person.page.get_by_role("link", name="Settings").click()
    own = other.page.get_by_role("region", name="Settings")
    await expect(own).to_contain_text(ben)

    await bob.page.get_by_role("link", name="Profile", exact=True).click()
    picture = {"name": "me.png", "mimeType": "image/png", "buffer": make_picture("teal")}
    field = bob.page.get_by_label("Change picture").and_(bob.page.locator("input"))
    await field.set_input_files([picture])
    await expect(bob.page.get_by_role("main").locator("img").first).to_be_visible()
    await bob.page.get_by_label("Display name").fill("Benedict")
    await bob.page.get_by_role("button", name="Save", exact=True).click()
    await expect(bob.page.get_by_text("Saved", exact=True)).to_be_visible()
    for person in (alice, other):
        await person.leave_window()
        await person.page.evaluate(ADVANCE_CLOCK)
        await person.return_to_window()
    await expect(alice.row("Benedict").locator("img")).to_be_visible()
    await expect(own).to_contain_text("Benedict")
    await expect(own.locator("img")).to_be_visible()

    async with open_caller(web, ben) as caller:
        await caller.call("PATCH", "/v1/me", {"name": "Benny"})
        await alice.page.evaluate(ADVANCE_CLOCK)
        await caller.send(await caller.open_direct(ann), "a new name")
        await expect(alice.row("Benny")).to_contain_text("a new name")
    for person in (alice, bob, other):
        await person.check_is_clean()


async def test_changed_name_reaches_a_window_that_stays_in_focus(
    web: WebStack, visit: Visit
) -> None:
    """The periodic refresh updates the name, without a message or a change of focus."""
    ann, ben = web.new_users(2)
    alice, bob = await visit(ann, is_logged_in=False), await visit(ben, is_logged_in=False)
    await alice.page.add_init_script(FAST_REFRESH)
    await alice.page.reload()
    for person in (alice, bob):
        await person.log_in()
    await bob.start_chat(ann)
    await bob.send("hello")
    await expect(alice.row(ben)).to_be_visible()

    async with open_caller(web, ben) as caller:
        await caller.call("PATCH", "/v1/me", {"name": "Benedict"})
    await alice.page.evaluate(ADVANCE_CLOCK)

    await expect(alice.row("Benedict")).to_contain_text("hello")
    for person in (alice, bob):
        await person.check_is_clean()
