"""Marks of messages that Redis has lost: messages that get their seqs are unread and visible."""

from __future__ import annotations

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, Seq
from chatserver.domain.inboxes import UserMarks
from chatserver.warm.chats.member_states import MarkUpdate
from tests.integration.workers.support import ALICE, BOB, CAROL, Gateway, make_group, persist


async def make_stored_chat(container: StorageContainer, gateway: Gateway) -> ChatId:
    """Create a group with two messages, which DynamoDB has."""
    group = await make_group(container, ALICE, BOB, CAROL)
    await gateway.send(group, "one", "two")
    await persist(container)
    return group.chat


async def test_read_marks_above_the_newest_entry_are_lowered_when_the_chat_is_loaded(
    container: StorageContainer, gateway: Gateway
) -> None:
    """DynamoDB had the marks before the messages, which Redis lost."""
    chat, hot = await make_stored_chat(container, gateway), container.hot
    await container.member_state.put_marks(
        [MarkUpdate(chat, BOB, 7, 9), MarkUpdate(chat, CAROL, 1, 5)]
    )
    for user in (BOB, CAROL):
        await container.user_loader.load_user(user)
    await hot.call("HSET", hot.keys.box(BOB), f"r:{chat}", 7, f"d:{chat}", 9)
    await hot.call("HSET", hot.keys.box(CAROL), f"r:{chat}", 1, f"d:{chat}", 6)
    await hot.call("DEL", hot.keys.chat(chat), hot.keys.log(chat))
    head = await container.older_tiers.find_head(chat)
    assert head is not None
    newest = Seq(head.seq)

    await container.chat_loader.load_chat(chat)
    await container.chat_loader.load_chat(chat)

    members = {each.user: each for each in await container.directory.list_members(chat)}
    assert (members[BOB].read, members[BOB].received) == (newest, newest)
    assert (members[CAROL].read, members[CAROL].received) == (1, newest)
    assert await container.inboxes.get_marks(BOB, chat) == UserMarks(newest, newest, is_open=True)
    assert (await container.inboxes.get_marks(CAROL, chat)).received == 6, "it has moved meanwhile"


async def test_read_mark_in_redis_above_the_newest_entry_is_lowered_when_chats_are_listed(
    container: StorageContainer,
) -> None:
    """The user was loaded while the stored mark was lowered."""
    chat, hot = (await make_group(container, ALICE, BOB)).chat, container.hot
    await container.user_loader.load_user(BOB)
    await hot.call("HSET", hot.keys.box(BOB), f"r:{chat}", 7, f"d:{chat}", 9)

    (listed,) = await container.inboxes.list_chats(BOB)

    assert (listed.read, listed.received) == (listed.top, listed.top)
    assert await container.inboxes.get_marks(BOB, chat) == UserMarks(
        listed.top, listed.top, is_open=True
    )
    assert listed.top < Seq(7)


async def test_message_that_gets_the_seq_of_a_lost_hidden_one_is_visible(
    container: StorageContainer, gateway: Gateway
) -> None:
    """DynamoDB had the hidden seqs before the messages, which Redis lost."""
    chat, hot = await make_stored_chat(container, gateway), container.hot
    head = await container.older_tiers.find_head(chat)
    assert head is not None
    await container.member_state.add_hidden(chat, BOB, [1, head.seq + 1])
    await container.member_state.add_hidden(chat, CAROL, [head.seq + 2])
    for user in (BOB, CAROL):
        await container.user_loader.load_user(user)
    await hot.call("DEL", hot.keys.chat(chat), hot.keys.log(chat))

    await container.chat_loader.load_chat(chat)

    members = {each.user: each for each in await container.directory.list_members(chat)}
    assert [members[user].hidden for user in (BOB, CAROL)] == [(1,), ()]
    assert await container.hidden_messages.list_hidden(BOB, [chat]) == {chat: {1}}
    assert await container.hidden_messages.list_hidden(CAROL, [chat]) == {}
