"""`Idempotency-Key`: a request that is repeated creates nothing twice and gets the same answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx

from tests.integration.api_support import Caller, make_group, problem_of
from tests.support.rawchat import RawChat
from tests.support.stack import Stack

pytest_plugins = ["tests.support.stack_fixtures", "tests.integration.api_fixtures"]

NewName = Callable[[str], str]


async def post(client: httpx.AsyncClient, path: str, key: str, body: Any) -> httpx.Response:
    """Make a request under a key."""
    return await client.post(path, json=body, headers={"Idempotency-Key": key})


async def test_creation_repeated_with_its_key_gets_the_same_answer(
    caller: Caller, stack: Stack, new_name: NewName
) -> None:
    """One group, whatever the client did not hear the first time."""
    user, other = new_name("ines"), new_name("jan")
    await stack.add_users([other])
    client, body = caller(user), {"members": [other], "name": "Once"}

    first = await post(client, "/v1/chats", "once", body)
    again = await post(client, "/v1/chats", "once", body)

    assert (first.status_code, again.status_code) == (201, 201)
    assert again.content == first.content
    assert again.headers["content-type"] == first.headers["content-type"]
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert len((await client.get("/v1/chats")).json()["items"]) == 1


async def test_key_used_for_another_request_is_a_conflict(
    caller: Caller, alice: RawChat, pair: str
) -> None:
    """Another body, or another path, under the same key: the client has mixed something up."""
    client, path = caller(alice.user), f"/v1/chats/{pair}/messages"
    await post(client, path, "mixed", {"body": "one"})

    other_body = await post(client, path, "mixed", {"body": "two"})
    other_path = await post(client, "/v1/chats", "mixed", {"body": "one"})

    assert problem_of(other_body) == problem_of(other_path) == (409, "conflict")


async def test_key_of_another_user_is_another_key(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Nobody gets an answer that was given to somebody else."""
    path, body = f"/v1/chats/{pair}/messages", {"body": "hello"}

    mine = await post(caller(alice.user), path, "shared", body)
    theirs = await post(caller(bob.user), path, "shared", body)

    assert (mine.status_code, theirs.status_code) == (201, 201)
    assert mine.json()["seq"] != theirs.json()["seq"]


async def test_request_that_was_refused_may_be_mended_under_its_key(
    caller: Caller, stack: Stack, new_name: NewName
) -> None:
    """Nothing was done, so nothing is remembered."""
    user, late = new_name("kim"), new_name("late")
    client, body = caller(user), {"members": [late]}

    early = await post(client, "/v1/chats", "mended", body)
    await stack.add_users([late])
    mended = await post(client, "/v1/chats", "mended", body)

    assert problem_of(early) == (404, "not_found")
    assert mended.status_code == 201


async def test_requests_at_once_under_one_key_create_once(
    caller: Caller, alice: RawChat, bob: RawChat
) -> None:
    """One of them is answered; the others get the same, or are told to come again."""
    client = caller(alice.user)
    chat = await make_group(client, bob.user)
    path, body = f"/v1/chats/{chat}/messages", {"body": "at once"}

    answers = await asyncio.gather(*(post(client, path, "race", body) for _ in range(8)))

    made = [answer.json() for answer in answers if answer.status_code == 201]
    early = [problem_of(answer) for answer in answers if answer.status_code != 201]
    assert len({answer["mid"] for answer in made}) == 1
    assert set(early) <= {(409, "conflict")}
    assert (await client.get(path)).json()["messages"][-1]["seq"] == 1


async def test_key_of_another_shape_is_refused(caller: Caller, alice: RawChat, pair: str) -> None:
    """Up to 255 visible characters, once."""
    client, path = caller(alice.user), f"/v1/chats/{pair}/messages"
    for key in ("", "x" * 256, "two words"):
        answer = await post(client, path, key, {"body": "x"})
        assert problem_of(answer) == (400, "bad_request")
        assert answer.json()["detail"].startswith("Idempotency-Key: ")
    longest = await post(client, path, "x" * 255, {"body": "x"})
    assert longest.status_code == 201
