"""The social graph over HTTP with all workers."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from chatserver.dev.servers import Server
from tests.integration.api.support import Caller, problem_of
from tests.integration.features.social.support import call_api
from tests.support.servers.processes import eventually_equal
from tests.support.stack import NewName, Stack


@pytest.fixture(scope="module")
def social_worker(stack: Stack) -> Iterator[Server]:
    """A worker that counts likes and fans out posts, with a short flush interval."""
    worker = stack.start_worker(
        "counters", "timeline", **{"chatserver.features.social.worker.counters.FLUSH_S": "0.2"}
    )
    yield worker
    worker.kill()


async def test_profile_of_a_user_who_is_not_discoverable_is_hidden_from_strangers(
    caller: Caller, new_name: NewName
) -> None:
    """A chat with the user, or a follow by the user, shows the name and description."""
    alice, bob, carol = (new_name(name) for name in ("alice", "bob", "carol"))
    as_alice, as_bob, as_carol = map(caller, (alice, bob, carol))
    await call_api(as_alice, "PATCH", "/v1/me", {"name": "Alice", "about": "Tea"})
    for other in (as_bob, as_carol):
        await call_api(other, "GET", "/v1/me")

    async def read(client: httpx.AsyncClient) -> tuple[str | None, str | None]:
        profile = await call_api(client, "GET", f"/v1/users/{alice}")
        assert profile["user"] == alice
        return profile["name"], profile["about"]

    assert await read(as_alice) == ("Alice", "Tea")
    assert await read(as_bob) == await read(as_carol) == (None, None)
    assert (await call_api(as_bob, "GET", f"/v1/users?user={alice}"))["items"] == []
    chat = (await call_api(as_alice, "PUT", f"/v1/direct-chats/{bob}"))["chat"]
    await call_api(as_alice, "POST", f"/v1/chats/{chat}/messages", {"ref": "r1", "body": "hello"})
    assert await read(as_bob) == ("Alice", "Tea")
    await call_api(as_alice, "PUT", f"/v1/me/following/{carol}")
    assert await read(as_carol) == ("Alice", "Tea")
    await call_api(as_alice, "PATCH", "/v1/me", {"discoverable": True})
    assert await read(caller(new_name("dave"))) == ("Alice", "Tea")


@pytest.mark.usefixtures("social_worker")
async def test_follow_of_invalid_absent_or_blocking_user_is_refused(
    caller: Caller, new_name: NewName
) -> None:
    """A block also ends the follow, and the pages of the user who blocks are refused."""
    alice, bob = new_name("alice"), new_name("bob")
    as_alice, as_bob = caller(alice), caller(bob)
    await call_api(as_alice, "GET", "/v1/me")
    await call_api(as_bob, "PUT", f"/v1/me/following/{alice}")

    assert problem_of(await as_bob.put(f"/v1/me/following/{bob}")) == (400, "bad_request")
    nobody = f"/v1/me/following/{new_name('nobody')}"
    assert problem_of(await as_bob.put(nobody)) == (404, "not_found")
    await call_api(as_alice, "PUT", f"/v1/me/blocks/{bob}")
    assert problem_of(await as_bob.put(f"/v1/me/following/{alice}")) == (403, "forbidden")
    for path in ("", "/posts", "/followers", "/following", "/avatar"):
        assert problem_of(await as_bob.get(f"/v1/users/{alice}{path}")) == (403, "forbidden")

    profile = f"/v1/users/{alice}"
    await eventually_equal(
        lambda: call_api(as_alice, "GET", profile), 0, of=lambda found: found["followers"]
    )
    await call_api(as_alice, "DELETE", f"/v1/me/blocks/{bob}")
    await call_api(as_bob, "PUT", f"/v1/me/following/{alice}")


async def test_post_is_created_once_per_idempotency_key_and_listed_in_pages(
    caller: Caller, new_name: NewName
) -> None:
    """A repeat gets the same response; a cursor of another user and invalid posts are refused."""
    alice, bob = new_name("alice"), new_name("bob")
    as_alice, as_bob = caller(alice), caller(bob)
    key = {"Idempotency-Key": "once"}
    first = await as_alice.post("/v1/me/posts", json={"content": "one"}, headers=key)
    again = await as_alice.post("/v1/me/posts", json={"content": "one"}, headers=key)
    assert first.json() == again.json() and first.status_code == 201
    for text in ("two", "three"):
        await call_api(as_alice, "POST", "/v1/me/posts", {"content": text})
    await call_api(as_bob, "PUT", f"/v1/me/following/{alice}")

    page = await call_api(as_bob, "GET", f"/v1/users/{alice}/posts?limit=2")
    rest = await call_api(as_bob, "GET", f"/v1/users/{alice}/posts?limit=2&cursor={page['next']}")

    assert [each["content"] for each in page["items"] + rest["items"]] == ["three", "two", "one"]
    assert rest["next"] is None
    other = await as_alice.get(f"/v1/users/{alice}/posts?limit=2&cursor={page['next']}")
    assert problem_of(other) == (400, "bad_request")
    await call_api(as_alice, "DELETE", f"/v1/me/posts/{first.json()['id']}")
    like = await as_bob.put(f"/v1/users/{alice}/posts/{first.json()['id']}/like")
    assert problem_of(like) == (404, "not_found")
    for body in ({"content": ""}, {"content": "x" * 2001}, {"content": "x", "more": 1}, {}):
        assert problem_of(await as_alice.post("/v1/me/posts", json=body))[0] in (400, 413)
    assert problem_of(await as_alice.get(f"/v1/users/{alice}/posts/x%23y")) == (400, "bad_request")
