"""Uploading, sending and reading files, on real Redis, DynamoDB and S3."""

from __future__ import annotations

import pytest

from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import open_s3
from chatserver.domain.client_addresses import get_networks, get_subject
from chatserver.domain.ids import ChatId, UserId, new_id
from chatserver.errors import BadRequest, Conflict, Forbidden, NotFound, RateLimited, TooLarge
from chatserver.features.attachments.container import AttachmentContainer
from chatserver.features.social.container import SocialContainer
from chatserver.features.social.service.pictures import get_picture_space
from chatserver.hot.users.daily_limits import DailyLimit
from chatserver.protocol import frames
from chatserver.service.history.chat_query_pages import TimeRange
from tests.integration.features.attachments.support import (
    LOW_LIMITS,
    FileStack,
    cold_settings,
    picture,
)

pytest_plugins = ["tests.integration.features.attachments.fixtures"]
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.constants(LOW_LIMITS)]


async def test_file_sent_to_a_chat_reaches_its_members_from_every_tier(store: FileStack) -> None:
    """The message has the file in Redis and in DynamoDB, and members can download it."""
    chat, alice, bob, _carol = await store.open_chat()
    file = await store.upload(alice, chat, b"%PDF-1.7 hi", "Übersicht.pdf", "application/pdf")

    ack = await store.send(alice, chat, file.id)
    hot = await store.read(bob, chat, ack.seq)
    await store.persist()
    warm = await store.worker.messages.list_after(chat, 0, 10, None)

    expected = frames.Attachment(file.id, "Übersicht.pdf", "application/pdf", 11)
    assert hot.attachments == [expected]
    assert (hot.body, warm[-1].attachments) == ("", [expected])
    for options in ({"seq": ack.seq}, {}):  # with and without the seq of the message
        headers, content = await store.download(bob, file.id, **options)
        assert content == b"%PDF-1.7 hi"
    assert headers["content-type"] == "application/pdf"
    assert headers["content-disposition"].startswith("attachment; ")
    assert "filename*=UTF-8''%C3%9Cbersicht.pdf" in headers["content-disposition"]
    assert await store.list_keys(file.id) == [f"attachments/{chat}/{file.id}"]


async def test_unsent_files_are_limited_by_count(store: FileStack) -> None:
    """A sent file does not count."""
    chat, alice, bob, _carol = await store.open_chat()
    first = await store.upload(alice, chat, b"a")
    for content in (b"b", b"c"):
        await store.begin(alice, chat, content)
    with pytest.raises(RateLimited, match="unsent files"):
        await store.begin(alice, chat, b"d")
    await store.begin(bob, chat, b"e")

    await store.send(alice, chat, first.id)
    await store.persist()

    await store.begin(alice, chat, b"f")


async def test_bytes_of_all_files_of_a_user_are_limited(store: FileStack) -> None:
    """Sent files count until they are deleted, so a user cannot fill the bucket."""
    chat, alice, bob, _carol = await store.open_chat()
    first = await store.upload(alice, chat, b"a" * 8000)
    await store.send(alice, chat, first.id)
    second = await store.upload(alice, chat, b"b" * 10_000)
    seq = (await store.send(alice, chat, second.id)).seq
    await store.persist()

    with pytest.raises(TooLarge, match="18000 bytes and at most 20000"):
        await store.begin(alice, chat, b"c" * 2001)
    await store.begin(alice, chat, b"d" * 2000)
    await store.begin(bob, chat, b"e" * 2001)

    await store.api.message_change_service.change(alice, frames.Delete(0, chat, seq, "d1"))
    await store.persist()
    deleted = await store.rows.find_file(second.id)
    assert deleted is not None and await store.rows.remove_file(deleted)
    usage, _ = await store.uploads.get_usage(alice)
    assert (usage.user_bytes, usage.waiting) == (10_000, 1)
    await store.begin(alice, chat, b"f" * 10_000)


async def test_bytes_of_uploads_are_limited_per_day(store: FileStack) -> None:
    """Deleting a file does not give back the bytes of the day; a retry counts once."""
    chat, alice, _bob, _carol = await store.open_chat()
    limit = DailyLimit(store.api.hot, "file_bytes", 100_000)
    assert (await store.uploads.get_usage(alice))[1] == 100_000
    await limit.consume(alice, 95_000)

    await store.begin(alice, chat, b"a" * 3000, key="k1")
    await store.begin(alice, chat, b"a" * 3000, key="k1")
    with pytest.raises(RateLimited, match="within a day") as refused:
        await store.begin(alice, chat, b"b" * 3000)

    assert refused.value.retry_after_ms
    _, left = await store.uploads.get_usage(alice)
    assert 2000 <= left < 3000


async def test_new_accounts_of_a_network_share_a_daily_budget_of_uploads(store: FileStack) -> None:
    """Otherwise, one network could fill the bucket with many accounts."""
    limit = DailyLimit(store.api.hot, "file_bytes_test", 1000)
    networks = get_networks(get_subject("10.9.8.7"))

    counted = [await limit.consume(UserId(f"new-{n}"), 900, networks) == 0 for n in range(9)]

    assert counted == [True] * 5 + [False] * 4
    assert await limit.get_left(UserId("new-8")) == 1000
    assert await limit.consume(UserId("known"), 900) == 0
    assert await limit.consume(UserId(networks[0]), 900) == 0  # a user with the name of a network


async def test_upload_begun_again_with_its_key_is_the_same_file(store: FileStack) -> None:
    """A client can retry after a lost response. The same key for another file is a conflict."""
    chat, alice, bob, _carol = await store.open_chat()
    first = await store.begin(alice, chat, b"abc", key="k1")
    again = await store.begin(alice, chat, b"abc", key="k1")

    assert again.file.id == first.file.id
    assert (await store.begin(bob, chat, b"abc", key="k1")).file.id != first.file.id
    with pytest.raises(Conflict):
        await store.begin(alice, chat, b"other", key="k1")


async def test_send_repeated_with_its_reference_is_one_message(store: FileStack) -> None:
    """The same `ref` with the same files returns the same seq; other files are a conflict."""
    chat, alice, _bob, _carol = await store.open_chat()
    one = await store.upload(alice, chat, b"one")
    two = await store.upload(alice, chat, b"two")
    first = await store.send(alice, chat, one.id, ref="r1")
    await store.persist()

    again = await store.send(alice, chat, one.id, ref="r1")

    assert (again.seq, again.dup) == (first.seq, True)
    with pytest.raises(Conflict):
        await store.send(alice, chat, two.id, ref="r1")
    with pytest.raises(BadRequest):
        await store.send(alice, chat, two.id, two.id)
    with pytest.raises(BadRequest):
        await store.send(alice, chat)


async def test_message_with_more_files_than_allowed_is_refused(store: FileStack) -> None:
    """The limit is two files here."""
    chat, alice, _bob, _carol = await store.open_chat()
    files = [(await store.upload(alice, chat, bytes([n]))).id for n in range(3)]

    with pytest.raises(BadRequest):
        await store.send(alice, chat, *files)

    assert (await store.send(alice, chat, *files[:2])).seq == 1


async def test_image_above_the_size_limit_is_a_plain_file(store: FileStack) -> None:
    """The image counts as processed at once, because it never gets a thumbnail."""
    chat, alice, bob, _carol = await store.open_chat()
    head = b"\x89PNG\r\n\x1a\n"

    small = await store.upload(alice, chat, head.ljust(10_000), "a.png", "image/png")
    large = await store.upload(bob, chat, head.ljust(10_001), "b.png", "image/png")

    assert (small.is_processed, large.is_processed) == (False, True)


async def test_message_keeps_its_files_after_edit_and_reaction(store: FileStack) -> None:
    """The files are in Redis and, after the change is persisted, in DynamoDB."""
    chat, alice, bob, _carol = await store.open_chat()
    file = await store.upload(alice, chat, picture(), "a.png", "image/png")
    ack = await store.send(alice, chat, file.id, body="look")
    before = (await store.read(bob, chat, ack.seq)).attachments

    await store.api.message_change_service.change(bob, frames.React(0, chat, ack.seq, "x", "👍"))
    await store.api.message_change_service.change(
        alice, frames.Edit(0, chat, ack.seq, "y", "look!")
    )

    assert (await store.read(bob, chat, ack.seq)).attachments == before
    await store.persist()
    stored = await store.worker.messages.list_after(chat, ack.seq - 1, 1, None)
    assert (stored[0].body, stored[0].attachments) == ("look!", before)


async def test_messages_with_files_of_a_chat_are_listed_for_its_members(store: FileStack) -> None:
    """The list is newest first, in full pages, without deleted messages; strangers are refused."""
    chat, alice, bob, carol = await store.open_chat()
    queries, seqs = store.api.message_queries, []
    for number in range(4):
        file = await store.upload(alice, chat, b"content %d" % number, f"{number}.txt")
        seqs.append((await store.send(alice, chat, file.id)).seq)
        await store.send(bob, chat, body="and a word")
        await store.persist()
    gone = frames.Delete(0, chat, seqs[1], new_id())
    await store.api.message_change_service.change(alice, gone)

    first = await queries.list_files(bob, chat, TimeRange(), 2, None)
    rest = await queries.list_files(bob, chat, TimeRange(), 2, first.next)

    assert [message.seq for message in first.items] == [seqs[3], seqs[2]]
    assert [message.seq for message in rest.items] == [seqs[0]]
    assert rest.items[0].attachments[0].name == "0.txt"
    oldest = await queries.list_files(bob, chat, TimeRange(is_newest_first=False), 1, None)
    assert [message.seq for message in oldest.items] == [seqs[0]]
    with pytest.raises(NotFound):
        await queries.list_files(carol, chat, TimeRange(), 2, None)


async def test_member_who_joined_again_cannot_download_files_sent_in_between(
    store: FileStack,
) -> None:
    """The download is refused with and without the seq, and the list of files omits them."""
    _, alice, bob, _ = await store.open_chat()
    chats, change = store.api.chats, store.api.membership.change
    create = frames.CreateChat(0, new_id(), [bob], "Trip")
    chat = ChatId((await chats.create_chat(alice, create, is_host=True)).chat)
    visible = await store.upload(alice, chat, b"visible")
    first = await store.send(alice, chat, visible.id)
    await change(bob, frames.Leave(0, chat, new_id()))
    secret = await store.upload(alice, chat, b"secret")
    second = await store.send(alice, chat, secret.id)
    await change(alice, frames.Invite(0, chat, new_id(), [bob]), is_host=True)
    await store.persist()

    for options in ({"seq": first.seq}, {}):
        assert (await store.download(bob, visible.id, **options))[1] == b"visible"
    for options in ({"seq": second.seq}, {}):
        with pytest.raises(NotFound):
            await store.download(bob, secret.id, **options)
    page = await store.api.message_queries.list_files(bob, chat, TimeRange(), 10, None)
    assert [message.seq for message in page.items] == [first.seq]


async def test_bucket_applied_twice_is_unchanged_and_keeps_other_rules(s3: str) -> None:
    """`tables apply` can be repeated and keeps CORS rules that it did not create."""
    settings = cold_settings(s3)
    async with open_s3(settings) as store:
        first = await apply_bucket(store, settings)
        rules = (await store.call("get_bucket_cors"))["CORSRules"]
        other_rule = {"ID": "theirs", "AllowedOrigins": ["http://a"], "AllowedMethods": ["GET"]}
        await store.call("put_bucket_cors", CORSConfiguration={"CORSRules": [other_rule, *rules]})

        second = await apply_bucket(store, settings)
        kept = (await store.call("get_bucket_cors"))["CORSRules"]

    assert [change.action for change in first] == ["created", "changed", "changed"]
    assert [change.action for change in second] == ["kept"]
    assert [rule["ID"] for rule in kept] == ["theirs", "chatserver-pages"]


async def test_image_of_a_profile_or_post_is_visible_with_it(store: FileStack) -> None:
    """The upload is not part of a chat, usable by its owner only, and removed when unused."""
    graph = store.api.get(SocialContainer).social
    _chat, alice, bob, _carol = await store.open_chat()
    image = picture((8, 6))
    file = await store.upload(alice, get_picture_space(alice), image, "me.png", "image/png")
    plain = await store.upload(alice, get_picture_space(alice), b"text", "a.txt", "text/plain")

    with pytest.raises(NotFound):  # bob does not own it
        await graph.put_avatar(bob, file.id)
    with pytest.raises(BadRequest, match="image: must be one of"):
        await graph.put_avatar(alice, plain.id)
    with pytest.raises(NotFound):  # the file is not in a chat
        await store.send(alice, _chat, file.id)
    with pytest.raises(NotFound):
        await store.upload(bob, get_picture_space(alice), image, "x.png", "image/png")
    await graph.put_avatar(alice, file.id)
    post = (await graph.create_post(alice, "look", file.id)).post

    link = await graph.get_image_link(bob, alice, post.id, is_thumb=False)
    async with store.http.get(link.url) as answer:
        assert await answer.read() == image
    assert (await graph.get_profile(alice, alice)).info.avatar == file.id
    assert (await graph.get_avatar_link(alice, alice, is_thumb=False)).file.id == file.id
    with pytest.raises(NotFound):  # without the post, only the owner may download it
        await store.api.get(AttachmentContainer).download_links.get(
            bob, file.id, seq=None, is_thumb=False
        )
    await graph.put_avatar(alice, None)
    assert (await store.rows.find_file(file.id)).due is None  # type: ignore[union-attr]  # the post has it
    await graph.edit_post(alice, post.id, {"image": None})
    gone = await store.rows.find_file(file.id)
    assert gone is not None and gone.due is not None
    with pytest.raises(NotFound):
        await graph.get_image_link(bob, alice, post.id, is_thumb=False)
    await store.api.moderation.block(alice, bob)
    with pytest.raises(Forbidden):
        await graph.get_avatar_link(bob, alice, is_thumb=False)
