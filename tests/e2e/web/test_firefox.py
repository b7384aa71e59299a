"""The web client in Firefox: two people and three devices, and a reload without the server."""

from __future__ import annotations

from playwright.async_api import expect

from tests.e2e.web.client_support import WORKER_READY, Visit, Visitor
from tests.e2e.web.stack_support import WebStack


async def type_and_send(person: Visitor, text: str) -> None:
    """Send a message with key presses; `fill` does not work (see `tests.support.bidi_relay`)."""
    await person.field.press_sequentially(text)
    await person.field.press("Enter")
    await expect(person.field).to_have_value("")


async def test_two_people_chat_on_three_devices_and_one_reloads_offline(
    web: WebStack, visit: Visit, visit_in_firefox: Visit
) -> None:
    """Each device has each message once and in order; messages written offline are sent once."""
    ann, ben = web.new_users(2)
    chromium = await visit(ann)
    laptop, peer = await visit_in_firefox(ann, is_far=True), await visit_in_firefox(ben)
    devices = (chromium, laptop, peer)

    await chromium.start_chat(ben)
    await chromium.send("one", "two")
    await laptop.open_chat(ben)
    await expect(laptop.messages("two")).to_have_count(1)
    await type_and_send(laptop, "three")
    await peer.open_chat(ann)
    await expect(peer.messages("three")).to_have_count(1)
    await type_and_send(peer, "four")
    texts = ["one", "two", "three", "four"]
    for device in devices:
        await device.expect_texts(*texts)
    await expect(chromium.mark("three", "Read")).to_be_visible()

    await laptop.page.evaluate(WORKER_READY)
    await laptop.wait_until_stored("four")
    with web.outage():
        await laptop.page.reload()
        await expect(laptop.row(ben)).to_contain_text("four")
        await expect(laptop.banner).to_be_visible()
        await laptop.expect_texts(*texts)
        await type_and_send(laptop, "written offline")
        await type_and_send(peer, "missed")
        await expect(chromium.messages("missed")).to_have_count(1)  # so that it gets a lower seq
        await laptop.wait_until_stored("written offline")
        await laptop.page.reload()
        await expect(laptop.messages("written offline")).to_have_count(1)
    await laptop.report_online()

    await expect(laptop.banner).to_have_count(0)
    for device in devices:
        await device.expect_texts(*texts, "missed", "written offline")
    await laptop.page.reload()
    await laptop.expect_texts(*texts, "missed", "written offline")
    for device in devices:
        await device.check_is_clean(had_outage=device is laptop)
