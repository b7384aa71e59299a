"""The social network of the DynamoDB Developer Guide: seven access patterns in one table."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.reference.support import (
    MERGED_ABOVE,
    Server,
    User,
    indexes_of,
    keys_of,
    wait_for,
)

WORKBENCH = Path(__file__).parents[3] / "deploy" / "dynamodb" / "nosql-workbench.json"
MONTH_S = 30 * 86_400


def count_row(server: Server, user: User) -> dict[str, Any]:
    return server.item("social", PK=f"u#{user.id}", SK="count") or {}


def add_post(user: User, text: str) -> str:
    return str(user.post("/v1/me/posts", {"content": text})["id"])


def test_get_user_info_by_user_id(server: Server) -> None:
    """One Query returns the separate items `info` and `count`."""
    ann, ben = server.add_users(2)
    ann.patch("/v1/me", {"name": "Ann", "about": "Likes the sea", "discoverable": True})
    ben.put(f"/v1/me/following/{ann.id}")
    add_post(ann, "Hello")

    wait_for(lambda: count_row(server, ann).get("follower#") == 1, "the count")
    count, info = server.rows("social", f"u#{ann.id}")

    assert (count["SK"], info["SK"]) == ("count", "info")
    assert (count["follower#"], count["post#"]) == (1, 1)
    assert (info["name"], info["about"]) == ("Ann", "Likes the sea")
    profile = ben.get(f"/v1/users/{ann.id}")
    assert (profile["name"], profile["followers"], profile["posts"]) == ("Ann", 1, 1)
    assert profile["followed"] and not profile["follows"]


def test_counts_change_without_the_info(server: Server) -> None:
    """The item that changes often is small."""
    ann, ben = server.add_users(2)
    ann.patch("/v1/me", {"about": "x" * 200})
    before = server.item("social", PK=f"u#{ann.id}", SK="info")

    ben.put(f"/v1/me/following/{ann.id}")

    wait_for(lambda: count_row(server, ann).get("follower#") == 1, "the count")
    assert server.item("social", PK=f"u#{ann.id}", SK="info") == before
    assert "about" not in count_row(server, ann)


@pytest.mark.parametrize(("kind", "path"), [("follower", "followers"), ("following", "following")])
def test_get_list_by_user_id_is_one_query(server: Server, kind: str, path: str) -> None:
    """A Query of `u#<user>#follower` or `u#<user>#following` returns the users in pages."""
    ann, *others = server.add_users(4)
    for other in others:
        by, user = (other, ann) if kind == "follower" else (ann, other)
        by.put(f"/v1/me/following/{user.id}")

    expected = sorted(other.id for other in others)
    assert server.sort_keys("social", f"u#{ann.id}#{kind}") == [f"u#{name}" for name in expected]
    listed = others[0].pages(f"/v1/users/{ann.id}/{path}", limit=2)
    assert [each["user"] for each in listed] == expected


def test_follow_and_unfollow_write_both_edges_and_both_counts(server: Server) -> None:
    """One transaction writes both edges, once even if repeated; the counts are updated later."""
    ann, ben = server.add_users(2)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: ann.put(f"/v1/me/following/{ben.id}"), range(4)))

    (following,) = server.rows("social", f"u#{ann.id}#following")
    (follower,) = server.rows("social", f"u#{ben.id}#follower")
    assert following["since"] == follower["since"]
    assert (following["SK"], follower["SK"]) == (f"u#{ben.id}", f"u#{ann.id}")

    def counts() -> tuple[Any, Any]:
        return count_row(server, ann).get("following#"), count_row(server, ben).get("follower#")

    wait_for(lambda: counts() == (1, 1), "the counts")
    ann.delete(f"/v1/me/following/{ben.id}")
    assert server.rows("social", f"u#{ann.id}#following") == []
    assert server.rows("social", f"u#{ben.id}#follower") == []
    wait_for(lambda: counts() == (0, 0), "the counts")


def test_get_post_list_by_user_id_is_one_query(server: Server) -> None:
    """A Query of `u#<user>#post`. Ids are ULIDs, so the newest post is the last item."""
    ann, ben = server.add_users(2)
    posts = [add_post(ann, f"post {number}") for number in range(3)]

    rows = server.rows("social", f"u#{ann.id}#post")

    assert [row["SK"] for row in rows] == [f"p#{post}" for post in posts]
    assert posts == sorted(posts) and {len(post) for post in posts} == {26}
    listed = ben.pages(f"/v1/users/{ann.id}/posts", limit=2)
    assert [each["content"] for each in listed] == ["post 2", "post 1", "post 0"]
    ann.patch(f"/v1/me/posts/{posts[0]}", {"content": "edited"})
    assert server.rows("social", f"u#{ann.id}#post")[0]["content"] == "edited"


def test_get_user_likes_by_post_id_is_one_query(server: Server) -> None:
    """A Query of `p#<post>#likelist` returns the users."""
    ann, *others = server.add_users(4)
    post = add_post(ann, "Like me")
    path = f"/v1/users/{ann.id}/posts/{post}"
    for other in others:
        other.put(f"{path}/like")
    others[0].delete(f"{path}/like")

    expected = sorted(other.id for other in others[1:])
    assert server.sort_keys("social", f"p#{post}#likelist") == [f"u#{name}" for name in expected]
    assert [each["user"] for each in ann.pages(f"{path}/likes", limit=1)] == expected
    assert others[1].get(path)["liked"] and not others[0].get(path)["liked"]


def test_get_like_count_by_post_id_reads_one_item(server: Server) -> None:
    """GetItem of `p#<post>#likecount`. Likes wait in a queue and are added in batches."""
    ann, *others = server.add_users(4)
    post = add_post(ann, "Like me")
    row = server.item("social", PK=f"p#{post}#likecount", SK="count")
    assert row is not None and row["n"] == 0
    for other in others:
        other.put(f"/v1/users/{ann.id}/posts/{post}/like")

    def count() -> Any:
        return (server.item("social", PK=f"p#{post}#likecount", SK="count") or {})["n"]

    wait_for(lambda: count() == 3, "the count")
    assert others[0].get(f"/v1/users/{ann.id}/posts/{post}")["likes"] == 3
    queue = server.redis_key("counts")
    assert not queue or server.redis.type(queue) == "stream"


def test_get_timeline_by_user_id_is_one_query(server: Server) -> None:
    """A Query of `u#<user>#timeline`. Followers get a row for each post, which expires."""
    ann, ben, cleo = server.add_users(3)
    for author in (ben, cleo):
        ann.put(f"/v1/me/following/{author.id}")
    with ann.connect() as device:
        posts = [add_post(ben, "from Ben"), add_post(cleo, "from Cleo")]
        signal = device.wait_for(type="signal", kind="post")

    partition = f"u#{ann.id}#timeline"
    wait_for(lambda: len(server.rows("social", partition)) == 2, "the timeline rows")
    for row in server.rows("social", partition):
        assert abs(int(row["ttl"]) - time.time() - MONTH_S) < 3600
    assert server.expiry_of("social") == "ttl"
    keys = [f"p#{posts[0]}#u#{ben.id}", f"p#{posts[1]}#u#{cleo.id}"]
    assert server.sort_keys("social", partition) == keys
    assert signal["post"] in posts
    ben.patch(f"/v1/me/posts/{posts[0]}", {"content": "edited"})
    listed = ann.pages(f"/v1/users/{ann.id}/timeline", limit=1)
    assert [each["content"] for each in listed] == ["from Cleo", "edited"]


def test_posts_of_an_author_with_many_followers_are_merged_on_read(server: Server) -> None:
    """A post of an author with many followers costs one item and no timeline rows."""
    author, *followers = server.add_users(MERGED_ABOVE + 2)
    for follower in followers:
        follower.put(f"/v1/me/following/{author.id}")
    wait_for(lambda: count_row(server, author).get("follower#") == len(followers), "the count")

    post = add_post(author, "Hello, everyone")

    def timeline(user: User) -> list[str]:
        return [each["id"] for each in user.get(f"/v1/users/{user.id}/timeline")["items"]]

    for follower in followers:  # readers notice within seconds that the author has many followers
        wait_for(lambda user=follower: timeline(user) == [post], "the post")  # type: ignore[misc]
        assert server.rows("social", f"u#{follower.id}#timeline") == []
    assert server.item("directory", PK="merged", SK=f"merged#{author.id}") is not None


def test_workbench_model_matches_the_tables(server: Server) -> None:
    """`deploy/dynamodb/nosql-workbench.json` can be imported into NoSQL Workbench."""
    model = json.loads(WORKBENCH.read_text("utf-8"))

    for table in model["DataModel"]:
        running = server.describe(table["TableName"])
        keys = table["KeyAttributes"]
        expected = [keys[part]["AttributeName"] for part in ("PartitionKey", "SortKey")]
        assert keys_of(running) == expected
        names = {index["IndexName"] for index in table.get("GlobalSecondaryIndexes", ())}
        assert names == set(indexes_of(running))
        facets = {facet["FacetName"]: facet for facet in table["TableFacets"]}
        assert {name for name in facets if name.startswith("Index ")} == {
            name for name in facets if name[6:].partition(":")[0] in names
        }
        assert all(facets[name]["TableData"] for name in facets if not name.startswith("Index "))
    assert len(model["DataModel"]) == 4
