"""Favorites over HTTP and in the SDK: save, list and remove posts and messages."""

from __future__ import annotations

from typing import Any

import httpx

from chatserver.client import ChatClient
from chatserver.dev.servers import Server
from tests.integration.api.support import Caller, problem_of, send
from tests.integration.features.social.support import call_api
from tests.support.rawchat import RawChat
from tests.support.stack import NewName, Stack

MESSAGES, POSTS = "/v1/me/favorites/messages", "/v1/me/favorites/posts"


async def read_all(client: httpx.AsyncClient, path: str) -> list[Any]:
    """Read a list in pages of two; all pages but the last must be full."""
    found: list[Any] = []
    cursor = ""
    while True:
        page = await call_api(client, "GET", f"{path}?limit=2{cursor}")
        found += page["items"]
        if page["next"] is None:
            return found
        assert len(page["items"]) == 2
        cursor = f"&cursor={page['next']}"


async def test_saved_posts_are_listed_for_the_user_last_saved_first(
    caller: Caller, new_name: NewName
) -> None:
    """Saving is idempotent. Deleted posts and posts of blocking users are not listed."""
    alice, bob, carol = map(new_name, ("alice", "bob", "carol"))
    as_alice, as_bob, as_carol = caller(alice), caller(bob), caller(carol)
    made = [
        (who, (await call_api(client, "POST", "/v1/me/posts", {"content": f"post {number}"}))["id"])
        for number, (who, client) in enumerate(((alice, as_alice), (carol, as_carol)) * 2)
    ]
    for author, post in [*made[::-1], made[3]]:
        await call_api(as_bob, "PUT", f"{POSTS}/{author}/{post}")

    found = await read_all(as_bob, POSTS)
    again = await call_api(as_bob, "GET", f"/v1/users/{alice}/posts/{made[0][1]}")
    of_alice = await call_api(as_alice, "GET", f"/v1/users/{alice}/posts/{made[0][1]}")

    assert [each["post"]["content"] for each in found] == [f"post {n}" for n in range(4)]
    assert found[0]["saved"] >= found[3]["saved"] >= found[3]["post"]["created"]
    assert found[0]["post"] == again
    assert (again["favorite"], of_alice["favorite"]) == (True, False)
    assert await read_all(as_alice, POSTS) == []
    await call_api(as_alice, "DELETE", f"/v1/me/posts/{made[0][1]}")
    await call_api(as_carol, "PUT", f"/v1/me/blocks/{bob}")
    assert [each["post"]["content"] for each in await read_all(as_bob, POSTS)] == ["post 2"]
    await call_api(as_carol, "DELETE", f"/v1/me/blocks/{bob}")
    await call_api(as_bob, "DELETE", f"{POSTS}/{alice}/{made[2][1]}")
    await call_api(as_bob, "DELETE", f"{POSTS}/{alice}/{made[2][1]}")
    left = [each["post"]["content"] for each in await read_all(as_bob, POSTS)]
    assert left == ["post 1", "post 3"]
    gone = await as_bob.put(f"{POSTS}/{alice}/{made[0][1]}")
    assert problem_of(gone) == (404, "not_found")


async def test_saved_messages_are_listed_while_the_user_may_read_them(
    caller: Caller, alice: RawChat, bob: RawChat
) -> None:
    """They are listed with their edits, unless deleted, hidden, or in a chat that the user left."""
    as_alice, as_bob = caller(alice.user), caller(bob.user)
    chat = await alice.create_group([bob.user], name="Trip")
    seqs = [(await send(as_alice, chat, f"m{number}")).json()["seq"] for number in range(5)]
    for seq in seqs:
        await call_api(as_bob, "PUT", f"{MESSAGES}/{chat}/{seq}")
    path = f"/v1/chats/{chat}/messages"

    first = await read_all(as_bob, MESSAGES)
    await call_api(as_alice, "PATCH", f"{path}/{seqs[1]}", {"body": "edited"})
    await call_api(as_alice, "DELETE", f"{path}/{seqs[2]}")
    await call_api(as_bob, "DELETE", f"{path}/{seqs[3]}?for=me")
    await call_api(as_bob, "DELETE", f"{MESSAGES}/{chat}/{seqs[4]}")
    second = await read_all(as_bob, MESSAGES)

    assert [each["message"]["body"] for each in first] == ["m4", "m3", "m2", "m1", "m0"]
    assert [each["message"]["body"] for each in second] == ["edited", "m0"]
    assert (second[1]["message"]["chat"], second[1]["message"]["seq"]) == (chat, seqs[0])
    assert problem_of(await as_bob.put(f"{MESSAGES}/{chat}/{seqs[2]}")) == (404, "not_found")
    assert problem_of(await as_bob.put(f"{MESSAGES}/{chat}/{seqs[4] + 99}")) == (404, "not_found")
    await bob.request("leave", chat=chat, ref="l")
    assert await read_all(as_bob, MESSAGES) == []
    assert problem_of(await as_bob.put(f"{MESSAGES}/{chat}/{seqs[0]}")) == (404, "not_found")


async def test_sdk_has_all_social_functions(
    stack: Stack, api: Server, alice: RawChat, bob: RawChat, pair: str, caller: Caller
) -> None:
    """Follow, post, save, list and remove."""
    ack = (await send(caller(alice.user), pair, "hello")).json()
    async with ChatClient(
        f"ws://127.0.0.1:{stack.port}/", stack.token(bob.user), device="sdk", api_url=api.endpoint
    ) as client:
        social = client.social
        await social.follow(alice.user)
        post = await social.create_post("my post")
        await social.save_post(bob.user, post["id"])
        await social.save_message(pair, ack["seq"])
        posts = await social.list_favorite_posts(limit=1)
        messages = await social.list_favorite_messages()
        profile = await social.get_profile(alice.user)
        mine = await social.list_posts(bob.user)

        assert [each.post["content"] for each in posts.items] == ["my post"]
        assert posts.next is None
        assert [each.message.body for each in messages.items] == ["hello"]
        assert profile["followed"] and mine.posts[0]["favorite"]
        await social.remove_saved_post(bob.user, post["id"])
        await social.remove_saved_message(pair, ack["seq"])
        await social.unfollow(alice.user)
        assert (await social.list_favorite_posts()).items == []
        assert (await social.list_favorite_messages()).items == []
        assert (await social.read_timeline(bob.user)).next is None
