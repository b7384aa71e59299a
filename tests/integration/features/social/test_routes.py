"""The social graph over HTTP, with all workers beside it, as two people use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from chatserver.dev.servers import Server
from tests.integration.api.support import Caller, problem_of
from tests.support.servers.processes import eventually
from tests.support.stack import Stack

pytest_plugins = ["tests.support.stack_fixtures", "tests.integration.api.fixtures"]
NewName = Callable[[str], str]


@pytest.fixture(scope="module")
def social_worker(stack: Stack) -> Iterator[Server]:
    """Counts likes and brings posts to timelines, quickly."""
    worker = stack.start_worker(
        "counters", "timeline", **{"chatserver.features.social.worker.counters.FLUSH_S": "0.2"}
    )
    yield worker
    worker.kill()


async def ask(client: httpx.AsyncClient, method: str, path: str, body: Any = None) -> Any:
    """Make a request that is answered."""
    answer = await client.request(method, path, json=body)
    assert answer.is_success, (method, path, answer.text)
    return answer.json() if answer.content else None


@pytest.mark.usefixtures("social_worker")
async def test_post_reaches_a_follower_live_and_its_likes_are_counted(
    stack: Stack, caller: Caller, new_name: NewName
) -> None:
    """Follow, post, signal, timeline, like, count, edit, delete: each seen from the other side."""
    alice, bob = new_name("alice"), new_name("bob")
    hers, his = caller(alice), caller(bob)
    await ask(hers, "PATCH", "/v1/me", {"name": "Alice"})
    async with stack.chat_of(bob) as device:
        await ask(his, "PUT", f"/v1/me/following/{alice}")
        await ask(his, "PUT", f"/v1/me/following/{alice}")
        made = await ask(hers, "POST", "/v1/me/posts", {"content": "hello"})
        frame = await device.expect_frame("signal", kind="post")

    assert (frame["from"], frame["post"]) == (alice, made["id"])
    timeline = await ask(his, "GET", f"/v1/users/{bob}/timeline")
    assert timeline["items"] == [made] and timeline["next"] is None
    assert (made["name"], made["likes"], made["liked"]) == ("Alice", 0, False)
    path = f"/v1/users/{alice}/posts/{made['id']}"
    await ask(his, "PUT", f"{path}/like")
    assert (await ask(his, "GET", path))["liked"]

    async def is_counted() -> bool:
        return (await ask(hers, "GET", path))["likes"] == 1

    await eventually(is_counted, what="the like is counted")
    likes = await ask(hers, "GET", f"{path}/likes")
    assert [each["user"] for each in likes["items"]] == [bob]
    profile = await ask(his, "GET", f"/v1/users/{alice}")
    assert profile == {
        "user": alice,
        "name": "Alice",
        "about": None,
        "avatar": None,
        "followers": 1,
        "following": 0,
        "posts": 1,
        "followed": True,
        "follows": False,
    }
    await ask(hers, "PATCH", f"/v1/me/posts/{made['id']}", {"content": "edited"})
    (seen,) = (await ask(his, "GET", f"/v1/users/{bob}/timeline"))["items"]
    assert seen["content"] == "edited" and seen["edited"] is not None
    await ask(hers, "DELETE", f"/v1/me/posts/{made['id']}")
    assert (await ask(his, "GET", f"/v1/users/{bob}/timeline"))["items"] == []
    assert problem_of(await his.put(f"{path}/like")) == (404, "not_found")
    assert problem_of(await hers.get(f"/v1/users/{bob}/timeline")) == (404, "not_found")


async def test_following_is_refused_in_the_words_of_the_protocol(
    caller: Caller, new_name: NewName
) -> None:
    """Oneself, who is not there, who blocks; and what was read of them is closed, too."""
    alice, bob = new_name("alice"), new_name("bob")
    hers, his = caller(alice), caller(bob)
    await ask(hers, "GET", "/v1/me")
    await ask(his, "PUT", f"/v1/me/following/{alice}")

    assert problem_of(await his.put(f"/v1/me/following/{bob}")) == (400, "bad_request")
    nobody = f"/v1/me/following/{new_name('nobody')}"
    assert problem_of(await his.put(nobody)) == (404, "not_found")
    await ask(hers, "PUT", f"/v1/me/blocks/{bob}")
    assert problem_of(await his.put(f"/v1/me/following/{alice}")) == (403, "forbidden")
    for path in ("", "/posts", "/followers", "/following", "/avatar"):
        assert problem_of(await his.get(f"/v1/users/{alice}{path}")) == (403, "forbidden")

    async def has_no_follower() -> bool:
        return bool((await ask(hers, "GET", f"/v1/users/{alice}"))["followers"] == 0)

    await eventually(has_no_follower, what="the block ends the follow, which is counted later")
    await ask(hers, "DELETE", f"/v1/me/blocks/{bob}")
    await ask(his, "PUT", f"/v1/me/following/{alice}")


async def test_post_is_made_once_under_its_key_and_paged_by_sealed_cursors(
    caller: Caller, new_name: NewName
) -> None:
    """A repeat gets the same answer; a cursor of one list is none of another."""
    alice, bob = new_name("alice"), new_name("bob")
    hers, his = caller(alice), caller(bob)
    key = {"Idempotency-Key": "once"}
    first = await hers.post("/v1/me/posts", json={"content": "one"}, headers=key)
    again = await hers.post("/v1/me/posts", json={"content": "one"}, headers=key)
    assert first.json() == again.json() and first.status_code == 201
    for text in ("two", "three"):
        await ask(hers, "POST", "/v1/me/posts", {"content": text})
    await ask(his, "PUT", f"/v1/me/following/{alice}")

    page = await ask(his, "GET", f"/v1/users/{alice}/posts?limit=2")
    rest = await ask(his, "GET", f"/v1/users/{alice}/posts?limit=2&cursor={page['next']}")

    assert [each["content"] for each in page["items"] + rest["items"]] == ["three", "two", "one"]
    assert rest["next"] is None
    other = await hers.get(f"/v1/users/{alice}/posts?limit=2&cursor={page['next']}")
    assert problem_of(other) == (400, "bad_request")
    for body in ({"content": ""}, {"content": "x" * 2001}, {"content": "x", "more": 1}, {}):
        assert problem_of(await hers.post("/v1/me/posts", json=body))[0] in (400, 413)
    assert problem_of(await hers.get(f"/v1/users/{alice}/posts/x%23y")) == (400, "bad_request")
