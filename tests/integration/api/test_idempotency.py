"""`Idempotency-Key`: a repeated request creates nothing twice and gets the same response."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from chatserver.api.idempotency import compute_short_digest, make_name
from chatserver.config import Redis
from chatserver.domain.access.principals import Principal
from chatserver.domain.ids import UserId
from chatserver.hot.bus.idempotent_responses import IdempotentResponses, StoredResponse
from chatserver.hot.redis.factory import open_hot
from tests.integration.api.support import Caller, make_group, problem_of
from tests.support.rawchat import RawChat
from tests.support.stack import NewName, Stack


async def post(client: httpx.AsyncClient, path: str, key: str, body: Any) -> httpx.Response:
    return await client.post(path, json=body, headers={"Idempotency-Key": key})


async def test_request_repeated_with_its_key_gets_the_same_response(
    caller: Caller, stack: Stack, new_name: NewName
) -> None:
    """Only one group is created, even if the client lost the first response."""
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
    """The same key with another body or path is an error of the client."""
    client, path = caller(alice.user), f"/v1/chats/{pair}/messages"
    await post(client, path, "mixed", {"body": "one"})

    other_body = await post(client, path, "mixed", {"body": "two"})
    other_path = await post(client, "/v1/chats", "mixed", {"body": "one"})

    assert problem_of(other_body) == problem_of(other_path) == (409, "conflict")


async def test_same_key_of_another_user_is_a_different_key(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """A response is returned only to the user who sent the request."""
    path, body = f"/v1/chats/{pair}/messages", {"body": "hello"}

    mine = await post(caller(alice.user), path, "shared", body)
    theirs = await post(caller(bob.user), path, "shared", body)

    assert (mine.status_code, theirs.status_code) == (201, 201)
    assert mine.json()["seq"] != theirs.json()["seq"]


async def test_refused_request_can_be_corrected_with_its_key(
    caller: Caller, stack: Stack, new_name: NewName
) -> None:
    """A refused request changed nothing, so its response is not saved."""
    user, late = new_name("kim"), new_name("late")
    client, body = caller(user), {"members": [late]}

    refused = await post(client, "/v1/chats", "corrected", body)
    await stack.add_users([late])
    corrected = await post(client, "/v1/chats", "corrected", body)

    assert problem_of(refused) == (404, "not_found")
    assert corrected.status_code == 201


async def test_concurrent_requests_with_one_key_get_one_response(
    caller: Caller, alice: RawChat, bob: RawChat
) -> None:
    """The first request runs. The others wait and get its response."""
    client = caller(alice.user)
    chat = await make_group(client, bob.user)
    path, body = f"/v1/chats/{chat}/messages", {"body": "at once"}

    answers = await asyncio.gather(*(post(client, path, "race", body) for _ in range(8)))

    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert sum("idempotency-replayed" in answer.headers for answer in answers) == 7
    assert (await client.get(path)).json()["messages"][-1]["seq"] == 1


async def test_repeat_waits_for_the_response_of_the_first_request(
    stack: Stack, caller: Caller, alice: RawChat, pair: str
) -> None:
    """A repeat during the first request waits for its response in every process."""
    client, path = caller(alice.user), f"/v1/chats/{pair}/messages"
    body, headers = b'{"body":"slow"}', {"Idempotency-Key": "slow"}
    async with open_hot(Redis(url=stack.redis_url)) as hot:
        answers, name = (
            IdempotentResponses(hot),
            make_name(Principal("user", UserId(alice.user)), "slow"),
        )
        digest = compute_short_digest("POST", path, "", body)
        assert await answers.claim(name, digest) is None

        repeat = asyncio.create_task(client.post(path, content=body, headers=headers))
        await asyncio.wait([repeat], timeout=0.5)
        await answers.put(name, StoredResponse(digest, 201, "application/json", b'{"seq":77}'))

        answer = await repeat
    assert (answer.status_code, answer.json()) == (201, {"seq": 77})
    assert answer.headers["idempotency-replayed"] == "true"


async def test_repeat_of_an_unfinished_request_is_refused_temporarily(
    stack: Stack, caller: Caller, alice: RawChat, pair: str
) -> None:
    """The temporary error has a retry delay. After the key is released, the request runs."""
    client, path = caller(alice.user), f"/v1/chats/{pair}/messages"
    async with open_hot(Redis(url=stack.redis_url)) as hot:
        answers, name = (
            IdempotentResponses(hot),
            make_name(Principal("user", UserId(alice.user)), "stuck"),
        )
        body, headers = b'{"body":"late"}', {"Idempotency-Key": "stuck"}
        assert await answers.claim(name, compute_short_digest("POST", path, "", body)) is None

        waited = await client.post(path, content=body, headers=headers)
        again = asyncio.create_task(client.post(path, content=body, headers=headers))
        await answers.release(name)  # as after a refusal or the end of its process

        assert problem_of(waited) == (503, "unavailable")
        assert waited.json()["temporary"] is True
        assert waited.json()["retry_after_ms"] > 0
        assert int(waited.headers["retry-after"]) >= 1
        assert (await again).status_code == 201


async def test_invalid_key_is_refused(caller: Caller, alice: RawChat, pair: str) -> None:
    """A key has 1 to 255 visible characters."""
    client, path = caller(alice.user), f"/v1/chats/{pair}/messages"
    for key in ("", "x" * 256, "two words"):
        answer = await post(client, path, key, {"body": "x"})
        assert problem_of(answer) == (400, "bad_request")
        assert answer.json()["detail"].startswith("Idempotency-Key: ")
    longest = await post(client, path, "x" * 255, {"body": "x"})
    assert longest.status_code == 201
