"""Topic and picture of a group, on real Redis, DynamoDB and S3."""

from __future__ import annotations

import pytest

from chatserver.domain.ids import ChatId, UserId, new_id
from chatserver.errors import BadRequest, Forbidden, NotFound, TooLarge
from chatserver.features.group_pictures.container import group_pictures
from chatserver.features.social.service.pictures import get_picture_space
from chatserver.protocol import frames
from tests.integration.features.attachments.support import LOW_LIMITS, FileStack, picture

pytest_plugins = ["tests.integration.features.attachments.fixtures"]
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.constants(LOW_LIMITS)]


async def make_group(store: FileStack) -> tuple[ChatId, UserId, UserId, UserId]:
    """Create a group of alice (owner) and bob; return it, both users, and the non-member carol."""
    _, alice, bob, carol = await store.open_chat()
    info = await store.api.chats.create_chat(alice, frames.CreateChat(0, new_id(), [bob], "Trip"))
    return ChatId(info.chat), alice, bob, carol


async def change(store: FileStack, user: UserId, chat: ChatId, **fields: str) -> frames.ChatInfo:
    frame = frames.UpdateChat(0, chat, new_id(), **fields)  # type: ignore[arg-type]  # str values
    return await store.api.membership.change(user, frame)


async def upload(store: FileStack, user: UserId, **kind: str) -> str:
    """Upload a picture to the user's own space."""
    content = picture() if not kind else b"text"
    type_ = kind.get("type", "image/png")
    return (await store.upload(user, get_picture_space(user), content, "a.png", type_)).id


async def get_picture(
    store: FileStack, user: UserId, chat: ChatId, *, is_thumb: bool = False
) -> bytes:
    link = await group_pictures(store.api).get_link(user, chat, is_thumb=is_thumb)
    async with store.http.get(link.url) as answer:
        return await answer.read()


async def test_topic_and_picture_are_in_chat_info_chat_list_and_history(store: FileStack) -> None:
    """They remain when the chat is not in Redis."""
    chat, alice, bob, _carol = await make_group(store)
    file = await upload(store, alice)

    info = await change(store, alice, chat, topic="  By the sea\n", picture=file)
    (listed,), _ = await store.api.chats.list_page(bob, None, 1)
    head = await store.api.chat_log.get_head(chat)
    entry = await store.read(bob, chat, head.seq)
    await store.persist()
    await store.api.hot.call("DEL", store.api.hot.keys.chat(chat))
    store.api.audiences.drop(chat)
    (loaded,), _ = await store.api.chats.list_page(bob, None, 1)

    assert (info.topic, info.picture, info.name) == ("By the sea", file, "Trip")
    assert (listed.chat, listed.picture) == (chat, file)
    assert (loaded.chat, loaded.picture) == (chat, file)
    assert entry.kind == "update"
    assert entry.body == f'{{"topic":"By the sea","picture":"{file}"}}'
    assert await get_picture(store, bob, chat) == picture()
    # No worker has made a thumbnail yet.
    assert await get_picture(store, bob, chat, is_thumb=True) == picture()


async def test_picture_is_set_by_managers_and_read_by_members(store: FileStack) -> None:
    """The picture must be the user's own upload. Only members can read it."""
    chat, alice, bob, carol = await make_group(store)
    of_alice, of_bob = await upload(store, alice), await upload(store, bob)

    with pytest.raises(Forbidden):
        await change(store, bob, chat, picture=of_bob)
    with pytest.raises(NotFound):
        await change(store, alice, chat, picture=of_bob)
    with pytest.raises(NotFound):
        await change(store, alice, chat, picture="absent")
    with pytest.raises(NotFound):
        await get_picture(store, bob, chat)
    await change(store, alice, chat, picture=of_alice)

    with pytest.raises(NotFound):
        await get_picture(store, carol, chat)
    found = await store.rows.find_file(of_bob)
    assert found is not None
    assert not found.seqs, "a refused change must not use the file"


async def test_picture_that_is_not_an_image_is_refused(store: FileStack) -> None:
    chat, alice, _bob, _carol = await make_group(store)
    file = await upload(store, alice, type="text/plain")

    with pytest.raises(BadRequest, match="image"):
        await change(store, alice, chat, picture=file)


async def test_replaced_or_removed_picture_is_unused(store: FileStack) -> None:
    """The file is not used any more, so the sweep removes it. An empty topic removes the topic."""
    chat, alice, bob, _carol = await make_group(store)
    first, second = await upload(store, alice), await upload(store, alice)
    await change(store, alice, chat, picture=first, topic="Old")

    replaced = await change(store, alice, chat, picture=second)
    after_replacement = await store.rows.find_file(first)
    removed = await change(store, alice, chat, picture="", topic="")
    after_removal = await store.rows.find_file(second)

    assert (replaced.picture, replaced.topic) == (second, "Old")
    assert (removed.picture, removed.topic) == (None, None)
    assert [file and file.seqs for file in (after_replacement, after_removal)] == [
        frozenset(),
        frozenset(),
    ]
    with pytest.raises(NotFound):
        await get_picture(store, bob, chat)


async def test_invalid_topic_is_refused_by_field(store: FileStack) -> None:
    """The error names the field and the limit."""
    chat, alice, _bob, _carol = await make_group(store)

    with pytest.raises(TooLarge, match="topic: must be at most 500 characters"):
        await change(store, alice, chat, topic="x" * 501)
    with pytest.raises(BadRequest, match="topic"):
        await change(store, alice, chat, topic="a\x00b")
    with pytest.raises(BadRequest, match="name, topic, picture"):
        await change(store, alice, chat)
