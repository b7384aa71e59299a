"""The access patterns of table `social`: requests, keys and rows."""

from __future__ import annotations

import pytest

from chatserver.config import Warm
from chatserver.errors import Conflict, Forbidden, NotFound, Unavailable
from chatserver.features.accounts.warm.accounts import AccountRows
from chatserver.features.social.model import PostId, PostRef
from chatserver.features.social.warm.follow_edges import FollowEdges
from chatserver.warm.chats.moderation import Moderation
from tests.integration.features.social.support import SocialRows, ref_of, social_rows_of
from tests.integration.warm.support import Tables

P1, P2, P3 = (f"01JD000000000000000000000{n}" for n in (1, 2, 3))
NOW_MS = 1_795_000_000_000


@pytest.fixture
def social_rows(tables: Tables) -> SocialRows:
    """The repositories on the tables of this test."""
    return social_rows_of(tables)


async def test_user_info_and_counts_are_read_with_one_query(
    social_rows: SocialRows, tables: Tables
) -> None:
    """`u#<id>` / `info` and `count`; the name is that of the account."""
    await social_rows.make_users("alice", "bob")
    await social_rows.graph.follow("bob", "alice", NOW_MS)
    await social_rows.post("alice", id_=P1)
    before, _ = await social_rows.profiles.find_profile("alice")
    assert before is None  # created by the first request
    await social_rows.profiles.make_info("alice")
    accounts = AccountRows(tables.client)
    await accounts.put_profile("alice", {"about": "Hi", "name": "Alice"})
    await social_rows.profiles.put_avatar("alice", "f-1")
    change = {"following": 0, "first": "1", "last": "1"}
    assert (await social_rows.counts.add_follows("alice", followers=1, **change))[0] == "counted"
    assert (await social_rows.counts.add_follows("alice", followers=1, **change))[
        0
    ] == "already_counted"
    assert (await social_rows.counts.add_follows("bob", followers=1, **change))[0] == "missing"

    tables.faults.requests.clear()
    info, counts = await social_rows.profiles.find_profile("alice")

    assert [name for name, _ in tables.faults.requests] == ["Query"]
    assert info is not None
    assert (info.name, info.about, info.avatar) == ("Alice", "Hi", "f-1")
    assert (counts.followers, counts.following, counts.posts) == (1, 0, 1)
    rows = await social_rows.all()
    assert rows["u#alice", "info"] == {"name": "Alice", "about": "Hi", "avatar": "f-1"}
    assert rows["u#alice", "count"] == {"follower#": 1, "following#": 0, "post#": 1, "batch": "1"}
    assert ("u#bob", "count") not in rows  # no profile, as after an erasure


async def test_user_info_is_created_completely_by_the_first_change(
    social_rows: SocialRows, tables: Tables
) -> None:
    """A change of one text does not overwrite another. An absent user gets no profile."""
    await social_rows.make_users("alice")
    accounts = AccountRows(tables.client)

    await accounts.put_profile("alice", {"about": "Hi"})

    rows = await social_rows.all()
    assert rows["u#alice", "info"] == {"name": "Name of alice", "about": "Hi"}
    with pytest.raises(NotFound):
        await accounts.put_profile("nobody", {"about": "Hi"})
    with pytest.raises(NotFound):
        await social_rows.profiles.make_info("nobody")
    assert ("u#nobody", "info") not in await social_rows.all()


async def test_follow_of_a_blocked_user_writes_nothing(
    social_rows: SocialRows, tables: Tables
) -> None:
    """The transaction checks blocks in both directions."""
    blocks = Moderation(tables.client)
    await blocks.put_block("alice", "bob", 1.0)

    with pytest.raises(Forbidden, match="alice: you cannot interact with this user"):
        await social_rows.graph.follow("bob", "alice", NOW_MS)
    with pytest.raises(Forbidden):
        await social_rows.graph.follow("alice", "bob", NOW_MS)
    assert await social_rows.all() == {}
    await blocks.delete_block("alice", "bob")
    assert await social_rows.graph.follow("bob", "alice", NOW_MS)


async def test_follow_with_conflicts_is_retried_until_its_deadline(
    social_rows: SocialRows, tables: Tables, warm_settings: Warm
) -> None:
    """A canceled transaction is repeated with the same token."""
    conflict = (
        400,
        {
            "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
            "CancellationReasons": [{"Code": "None"}, {"Code": "TransactionConflict"}],
        },
    )
    tables.faults.add("TransactWriteItems", lambda _: conflict, lambda _: conflict)

    assert await social_rows.graph.follow("bob", "alice", NOW_MS)

    tokens = [body["ClientRequestToken"] for body in tables.faults.bodies("TransactWriteItems")]
    assert len(tokens) == 3 and len(set(tokens)) == 1
    tables.faults.drop_responses("TransactWriteItems", 1)
    assert await social_rows.graph.follow("carol", "alice", NOW_MS)
    assert ("u#alice#follower", "u#carol") in await social_rows.all()
    tables.faults.requests.clear()
    tables.faults.add("TransactWriteItems", *[lambda _: conflict] * 9999)
    tables.client.settings = tables.settings.model_copy(update={"call_timeout_s": 1.0})
    graph = FollowEdges(tables.client)
    with pytest.raises(Unavailable, match=r"timed out after 1 s.*TransactionConflict"):
        await graph.follow("dave", "alice", NOW_MS)
    assert len(tables.faults.requests) > 2


async def test_posts_are_listed_newest_first_and_counted(
    social_rows: SocialRows, tables: Tables
) -> None:
    """`u#<id>#post` / `p#<ulid>`; a post is written with both counts in one transaction."""
    for id_ in (P1, P3, P2):
        await social_rows.post("alice", f"text {id_[-1]}", id_)
    await social_rows.posts.create_post(await social_rows.posts.get_post("alice", PostId(P1)))
    (first, *_) = tables.faults.bodies("TransactWriteItems")

    page = await social_rows.posts.list_posts("alice", None, 2)
    rest = await social_rows.posts.list_posts("alice", page.next, 2)

    assert [post.id for post in page.items + rest.items] == [P3, P2, P1]
    assert len(first["TransactItems"]) == 4
    rows = await social_rows.all()
    assert rows["u#alice#post", f"p#{P1}"] == {"content": "text 1", "created": NOW_MS}
    assert rows["u#alice", "count"] == {"post#": 3}
    assert rows[f"p#{P1}#likecount", "count"] == {"n": 0}
    with pytest.raises(Conflict):
        await social_rows.post("alice", "another", P1)
    assert (await social_rows.all())["u#alice", "count"] == {"post#": 3}


async def test_post_is_edited_and_deleted_once(social_rows: SocialRows) -> None:
    """An edit keeps the position in the list; a deletion also deletes the like count."""
    await social_rows.post("alice", "first", P1)

    changes: dict[str, str | None] = {"content": "second", "image": "f-1"}
    before, after = await social_rows.posts.edit_post("alice", PostId(P1), changes, NOW_MS + 5)
    assert (before.content, after.content, after.image) == ("first", "second", "f-1")
    assert after == await social_rows.posts.get_post("alice", PostId(P1))
    _, without_image = await social_rows.posts.edit_post(
        "alice", PostId(P1), {"image": None}, NOW_MS + 6
    )
    assert (await social_rows.all())["u#alice#post", f"p#{P1}"] == {
        "content": "second",
        "created": NOW_MS,
        "edited": NOW_MS + 6,
    }
    assert without_image.image is None
    assert await social_rows.posts.delete_post("alice", PostId(P1), NOW_MS)
    assert not await social_rows.posts.delete_post("alice", PostId(P1), NOW_MS)
    assert await social_rows.all() == {("u#alice", "count"): {"post#": 0}}
    with pytest.raises(NotFound):
        await social_rows.posts.edit_post("alice", PostId(P1), {"content": "x"}, NOW_MS)


async def test_likes_are_stored_with_a_link_for_erasure(social_rows: SocialRows) -> None:
    """`p#<id>#likelist` / `u#<id>`; the directory has a link from the user to each like."""
    post = await social_rows.post("alice", id_=P1)
    for user in ("bob", "carol", "dave"):
        assert await social_rows.likes.like(user, ref_of(post), NOW_MS)
    assert not await social_rows.likes.like("bob", ref_of(post), NOW_MS + 1)
    assert await social_rows.likes.unlike("dave", ref_of(post))
    assert not await social_rows.likes.unlike("dave", ref_of(post))

    page = await social_rows.likes.list_likes(post.id, None, 1)
    rest = await social_rows.likes.list_likes(post.id, page.next, 1)

    assert [edge.user for edge in page.items + rest.items] == ["bob", "carol"]
    assert await social_rows.likes.find_liked("bob", [post.id]) == {post.id}
    rows = await social_rows.all()
    assert rows[f"p#{P1}#likelist", "u#bob"] == {"at": NOW_MS}
    assert (f"p#{P1}#likelist", "u#dave") not in rows
    links = [key for key in await social_rows.all("directory") if key[1].startswith("liked#")]
    assert sorted(links) == [("u#bob", f"liked#{P1}#alice"), ("u#carol", f"liked#{P1}#alice")]


async def test_like_count_adds_each_batch_once(social_rows: SocialRows) -> None:
    """`p#<id>#likecount` / `count`: `n`, and the last queue entry that is counted."""
    post = await social_rows.post("alice", id_=P1)
    add_likes = social_rows.likes.add_likes

    assert (await add_likes(post.id, 3, "0001", "0003")).outcome == "counted"
    assert await add_likes(post.id, 3, "0001", "0003") == ("already_counted", "0003")
    assert await add_likes(post.id, 5, "0002", "0006") == ("already_counted", "0003")
    assert (await add_likes(post.id, -1, "0004", "0006")).outcome == "counted"

    assert await social_rows.likes.get_counts([post.id]) == {post.id: 2}
    assert (await social_rows.all())[f"p#{P1}#likecount", "count"] == {"n": 2, "batch": "0006"}
    await social_rows.posts.delete_post("alice", post.id, NOW_MS)
    assert (await add_likes(post.id, 1, "0007", "0007")).outcome == "missing"
    assert (f"p#{P1}#likecount", "count") not in await social_rows.all()


async def test_timeline_entries_are_rows_with_a_ttl(social_rows: SocialRows) -> None:
    """`u#<id>#timeline` / `p#<ulid>#u#<author>`: newest first, without expired ones."""
    for id_, author, ttl in ((P1, "alice", 100), (P2, "carol", 2000), (P3, "alice", 3000)):
        ref = PostRef(PostId(id_), author)
        await social_rows.timelines.put_entries([("bob", ref, ttl), ("dave", ref, ttl)])

    entries, is_more = await social_rows.timelines.list_entries("bob", None, 1000.0, 1)
    rest, _ = await social_rows.timelines.list_entries("bob", entries[-1], 1000.0, 5)

    assert is_more and [*entries, *rest] == [
        PostRef(PostId(P3), "alice"),
        PostRef(PostId(P2), "carol"),
    ]
    rows = await social_rows.all()
    assert rows["u#bob#timeline", f"p#{P2}#u#carol"] == {"ttl": 2000}
    assert rows["u#dave#timeline", f"p#{P1}#u#alice"] == {"ttl": 100}
    await social_rows.timelines.remove_entries("bob", entries)
    assert ("u#bob#timeline", f"p#{P3}#u#alice") not in await social_rows.all()
    assert await social_rows.timelines.remove_all("dave") == 3
