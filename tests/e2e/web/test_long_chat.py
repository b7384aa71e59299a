"""A long chat in the web client: limited DOM, all messages, and the scroll position."""

from __future__ import annotations

from playwright.async_api import expect

from tests.e2e.web.client_support import Visit
from tests.e2e.web.conversation_support import NODES_MAX, fill_chat, scroll_to
from tests.e2e.web.stack_support import WebStack
from tests.support.servers.processes import eventually

MESSAGES = 2_500  # more than the SDK keeps (1,000) and more than four windows


async def test_scrolling_to_the_first_message_and_back_shows_all_in_bounded_nodes(
    web: WebStack, visit: Visit
) -> None:
    """All messages are shown in both directions, with at most 1,500 nodes in the page."""
    ann, ben = web.new_users(2)
    async with web.stack.chat_of(ben) as writer:
        chat = await writer.open_direct(ann)
        await fill_chat(writer, chat, MESSAGES, lambda number: f"message {number}")
        await writer.request("mark", chat=chat, read=MESSAGES)
    async with web.stack.chat_of(ann) as reader:
        await reader.request("mark", chat=chat, read=MESSAGES)
    person = await visit(ann)
    await person.open_chat(ben)
    await expect(person.messages(f"message {MESSAGES}")).to_be_in_viewport()

    up = await scroll_to(person.page, 1)
    await expect(person.messages("message 1").first).to_be_in_viewport()
    down = await scroll_to(person.page, MESSAGES)
    await expect(person.messages(f"message {MESSAGES}")).to_be_in_viewport()

    wanted = set(range(1, MESSAGES + 1))
    assert (wanted - set(up["seen"]), wanted - set(down["seen"])) == (set(), set())
    assert max(up["nodes"], down["nodes"]) < NODES_MAX
    await person.check_is_clean()


async def test_chat_opens_at_the_first_unread_message_and_is_marked_as_read(
    web: WebStack, visit: Visit
) -> None:
    """After scrolling to the end, all messages are marked as read."""
    ann, ben = web.new_users(2)
    async with web.stack.chat_of(ben) as writer:
        chat = await writer.open_direct(ann)
        await fill_chat(writer, chat, 300, lambda number: f"message {number}")
        async with web.stack.chat_of(ann) as reader:
            await reader.request("mark", chat=chat, read=220)
        person = await visit(ann)
        await person.open_chat(ben)
        log = person.page.get_by_role("log")
        await expect(log.get_by_text("New messages")).to_be_in_viewport()
        await expect(person.messages("message 221")).to_be_in_viewport()

        await person.page.get_by_role("button", name="Jump to the newest message").click()

        await expect(person.messages("message 300")).to_be_in_viewport()
        async with web.stack.chat_of(ann, device="phone") as phone:

            async def is_read() -> bool:
                return not (await phone.read_list())[chat].get("unread")

            await eventually(is_read, deadline_s=60, what="all messages are marked as read")
        await writer.send(chat, "one more")
        await expect(person.messages("one more")).to_be_in_viewport()
    await person.check_is_clean()


async def test_quote_jumps_to_its_message_and_the_button_returns(
    web: WebStack, visit: Visit
) -> None:
    """A quote opens its message far above; a button returns to the newest message."""
    ann, ben = web.new_users(2)
    async with web.stack.chat_of(ben) as writer:
        chat = await writer.open_direct(ann)
        await fill_chat(writer, chat, 1_300, lambda number: f"message {number}")
        await writer.send(chat, "see above", reply_to=7)
        async with web.stack.chat_of(ann) as reader:
            await reader.request("mark", chat=chat, read=1_301)
        person = await visit(ann)
        await person.open_chat(ben)

        await person.messages("see above").get_by_role("button", name="message 7").click()

        await expect(person.messages("message 7").first).to_be_in_viewport()
        await writer.send(chat, "meanwhile")
        await expect(person.messages("message 7").first).to_be_in_viewport()
        await expect(person.messages("meanwhile")).to_have_count(0)
        await person.page.get_by_role("button", name="Jump to the newest message").click()
        await expect(person.messages("meanwhile")).to_be_in_viewport()
    await person.check_is_clean()
