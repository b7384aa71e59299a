"""Topic and picture of a group, on real Redis, DynamoDB and S3."""

from __future__ import annotations

import pytest

from chatserver.domain.ids import ChatId, UserId, new_id
from chatserver.errors import BadRequest, Forbidden, NotFound, TooLarge
from chatserver.features.group_pictures.container import group_pictures
from chatserver.features.social.service.pictures import space_of
from chatserver.protocol import frames
from tests.integration.features.attachments.support import FEW, FileWorld, picture

pytest_plugins = ["tests.integration.features.attachments.fixtures"]
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.constants(FEW)]


async def make_group(store: FileWorld) -> tuple[ChatId, UserId, UserId, UserId]:
    """A group of alice, its owner, and bob; and carol, who is not in it."""
    _, alice, bob, carol = await store.meet()
    info = await store.api.chats.create_chat(alice, frames.CreateChat(0, new_id(), [bob], "Trip"))
    return ChatId(info.chat), alice, bob, carol


async def change(store: FileWorld, user: UserId, chat: ChatId, **fields: str) -> frames.ChatInfo:
    """Send an `update_chat`."""
    frame = frames.UpdateChat(0, chat, new_id(), **fields)  # type: ignore[arg-type]  # texts
    return await store.api.membership.change(user, frame)


async def upload(store: FileWorld, user: UserId, **kind: str) -> str:
    """Upload a picture to the user's own space."""
    content = picture() if not kind else b"text"
    type_ = kind.get("type", "image/png")
    return (await store.upload(user, space_of(user), content, "a.png", type_)).id


async def get_picture(
    store: FileWorld, user: UserId, chat: ChatId, *, is_thumb: bool = False
) -> bytes:
    """Follow a member's link."""
    link = await group_pictures(store.api).get_link(user, chat, is_thumb=is_thumb)
    async with store.http.get(link.url) as answer:
        return await answer.read()


async def test_topic_and_picture_are_in_the_info_the_list_and_an_entry(store: FileWorld) -> None:
    """Members get both, and keep them after a loss of Redis."""
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


async def test_picture_is_for_members_and_set_by_managers_only(store: FileWorld) -> None:
    """A picture must be the user's own upload, and is readable in its group only."""
    chat, alice, bob, carol = await make_group(store)
    alice_http, bob_http = await upload(store, alice), await upload(store, bob)

    with pytest.raises(Forbidden):
        await change(store, bob, chat, picture=bob_http)
    with pytest.raises(NotFound):
        await change(store, alice, chat, picture=bob_http)
    with pytest.raises(NotFound):
        await change(store, alice, chat, picture="absent")
    with pytest.raises(NotFound):
        await get_picture(store, bob, chat)
    await change(store, alice, chat, picture=alice_http)

    with pytest.raises(NotFound):
        await get_picture(store, carol, chat)
    found = await store.rows.find_file(bob_http)
    assert found is not None
    assert not found.seqs, "a refused change keeps the file"


async def test_file_that_is_no_picture_is_refused(store: FileWorld) -> None:
    """A text file is uploaded in the same way."""
    chat, alice, _bob, _carol = await make_group(store)
    file = await upload(store, alice, type="text/plain")

    with pytest.raises(BadRequest, match="image"):
        await change(store, alice, chat, picture=file)


async def test_picture_that_was_replaced_or_removed_is_not_kept(store: FileWorld) -> None:
    """Its file goes like that of a former avatar; an empty topic is none."""
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


async def test_topic_out_of_bounds_is_refused(store: FileWorld) -> None:
    """The error names the field and the limit."""
    chat, alice, _bob, _carol = await make_group(store)

    with pytest.raises(TooLarge, match="topic: must be at most 500 characters"):
        await change(store, alice, chat, topic="x" * 501)
    with pytest.raises(BadRequest, match="topic"):
        await change(store, alice, chat, topic="a\x00b")
    with pytest.raises(BadRequest, match="name, topic, picture"):
        await change(store, alice, chat)
