"""Several devices of one user and refused messages in the web client."""

from __future__ import annotations

import asyncio
import re

from playwright.async_api import FilePayload, Response, Route, expect

from tests.e2e.web.client_support import Visit, Visitor
from tests.e2e.web.pages_support import make_picture, open_caller
from tests.e2e.web.stack_support import PATIENCE_MS, WebStack
from tests.support.servers.processes import eventually


class Hold:
    """Holds back the requests of a page until `release` is called."""

    def __init__(self, method: str) -> None:
        self._method = method
        self._is_released = asyncio.Event()
        self.count = 0

    async def __call__(self, route: Route) -> None:
        if route.request.method == self._method:
            self.count += 1
            await self._is_released.wait()
        await route.continue_()

    def release(self) -> None:
        self._is_released.set()


def watch_frames(person: Visitor) -> list[str]:
    """Return a list to which all frames that the page receives are added."""
    frames: list[str] = []

    def on_frame(frame: str | bytes) -> None:
        frames.append(frame if isinstance(frame, str) else frame.decode(errors="replace"))

    person.page.on("websocket", lambda socket: socket.on("framereceived", on_frame))
    return frames


def is_draft_deleted(response: Response) -> bool:
    """Return whether a response confirms that a draft is deleted."""
    return '"draft":{"text":""' in (response.request.post_data or "")


async def test_draft_is_synchronized_between_devices(web: WebStack, visit: Visit) -> None:
    """A draft appears on the other device, is not replaced while typing, and is sent once."""
    ann, ben = web.new_users(2)
    one, peer = await visit(ann, is_logged_in=False), await visit(ben, is_logged_in=False)
    two = await visit(ann, service_workers="block", is_logged_in=False)
    frames = watch_frames(two)
    for person in (one, two, peer):
        await person.log_in()
    await one.start_chat(ben)
    await one.field.fill("half a")
    await expect(two.row(ben)).to_contain_text("Draft: half a")
    await two.open_chat(ben)
    await expect(two.field).to_have_value("half a")
    await two.field.press("End")
    await two.field.press_sequentially(" thought")
    await expect(one.field).to_have_value("half a thought")

    held = Hold("PATCH")
    await two.page.route("**/v1/chats/*/preferences", held)
    await two.field.fill("half a thought here")
    await eventually(lambda: held.count > 0, PATIENCE_MS / 1000)
    await one.field.fill("half a thought there")
    await eventually(lambda: "half a thought there" in "".join(frames), PATIENCE_MS / 1000)
    await expect(two.field).to_have_value("half a thought here")
    await expect(one.field).to_have_value("half a thought there")
    held.release()
    await expect(two.field).to_have_value("half a thought there")  # the last edit wins

    await one.field.press("Enter")
    await expect(one.field).to_have_value("")
    await expect(two.field).to_have_value("")
    await expect(peer.row(ann)).to_contain_text("half a thought there")
    await expect(two.messages("half a thought there")).to_have_count(1)

    await one.field.fill("sent while closed")
    await expect(two.field).to_have_value("sent while closed")
    await two.wait_until_stored("sent while closed")
    await two.page.goto("about:blank")
    async with one.page.expect_response(is_draft_deleted):
        await one.field.press("Enter")
    await two.page.goto(two.url)
    await two.open_chat(ben)
    await expect(two.messages("sent while closed")).to_have_count(1)
    await expect(two.field).to_have_value("")
    await expect(two.row(ben)).not_to_contain_text("Draft")
    for person in (one, two, peer):
        await person.check_is_clean()


async def test_concurrent_pins_from_two_devices_are_both_kept(web: WebStack, visit: Visit) -> None:
    """The second change gets a conflict and is applied to the new list."""
    ann, ben, cy = web.new_users(3)
    async with open_caller(web, ann) as caller:
        for other in (ben, cy):
            await caller.send(await caller.open_direct(other), f"Hello {other}")
        one, two = [await visit(ann, service_workers="block", is_logged_in=False) for _ in range(2)]
        holds = [Hold("PUT"), Hold("PUT")]
        for person, held in zip((one, two), holds, strict=True):
            await person.log_in()
            await person.page.route("**/v1/me/pinned-chats", held)
        for person, other in ((one, ben), (two, cy)):
            await person.row(other).click(button="right")
            await person.page.get_by_role("menuitem", name="Pin", exact=True).click()
            pinned = person.page.get_by_role("list", name="Pinned")
            await expect(pinned).to_contain_text(other)  # both at once
        await eventually(lambda: all(held.count > 0 for held in holds), PATIENCE_MS / 1000)
        for held in holds:
            held.release()

        for person in (one, two):
            rows = person.page.get_by_role("list", name="Pinned").get_by_role("listitem")
            await expect(rows).to_have_count(2)
        found = await caller.call("GET", "/v1/me/pinned-chats")
        assert len(found["chats"]) == 2
    assert sum(held.count for held in holds) > 2  # one request was retried
    for person in (one, two):
        person.console_errors[:] = [text for text in person.console_errors if "409" not in text]
        await person.check_is_clean()


async def test_refused_message_survives_a_reload_and_is_edited_and_sent_again(
    web: WebStack, visit: Visit
) -> None:
    """A refused message keeps its text and files until the user sends or deletes it."""
    ann, ben = web.new_users(2)
    alice, bob = await visit(ann), await visit(ben)
    await alice.start_chat(ben)
    await alice.send("before")
    await expect(bob.row(ann)).to_contain_text("before")
    async with open_caller(web, ben) as caller:
        await caller.call("PUT", f"/v1/me/blocks/{ann}")
        picture: FilePayload = {
            "name": "a.png",
            "mimeType": "image/png",
            "buffer": make_picture("red"),
        }
        await alice.page.locator("input[type=file]").set_input_files([picture])
        await alice.field.fill("with a picture")
        await alice.field.press("Enter")
        await expect(alice.field).to_have_value("")
        await alice.send("without one")
        notices = alice.page.get_by_text("Not sent: ")
        await expect(notices).to_have_count(2)
        await alice.page.reload()
        await expect(notices).to_have_count(2)

        alerts = alice.page.get_by_role("alert").filter(has_text="Not sent")
        await alerts.nth(1).get_by_role("button", name="Edit", exact=True).click()
        await expect(alice.field).to_have_value("without one")
        await alice.field.fill("still without one")
        await alice.field.press("Enter")
        await expect(alice.messages("still without one")).to_have_count(1)
        await expect(notices).to_have_count(2)
        await caller.call("DELETE", f"/v1/me/blocks/{ann}")

    for left in (1, 0):
        await alice.page.get_by_role("button", name="Try again").first.click()
        await expect(notices).to_have_count(left)
    await bob.open_chat(ann)
    await expect(bob.messages("still without one")).to_have_count(1)
    tile = bob.messages("with a picture").get_by_role("button", name="Open image a.png")
    await expect(tile.locator("img")).to_be_visible()
    await alice.page.reload()
    await expect(alice.messages("still without one")).to_have_count(1)
    await expect(notices).to_have_count(0)
    await expect(alice.messages(re.compile("^without one"))).to_have_count(0)
    alice.console_errors[:] = [
        text for text in alice.console_errors if "403 (Forbidden)" not in text
    ]
    for person in (alice, bob):
        await person.check_is_clean()
