"""Routes built from declared requests: consent, cursors and charges are those of the frames."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from chatserver.config import Chats
from tests.integration.api.support import open_api, settings_of
from tests.security.support.users import bearer, make_key
from tests.support.stack import NewName, Stack


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an API in this process where strangers must consent."""
    async with open_api(settings_of(stack, chats=Chats(invitations="always"))) as app:
        transport = httpx.ASGITransport(app)  # type: ignore[arg-type]  # two types of ASGI
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as made:
            yield made


async def test_host_adds_strangers_and_a_user_only_invites_them(
    stack: Stack, client: httpx.AsyncClient, new_name: NewName
) -> None:
    """An API key that acts as a user needs no consent; a token of the same user does."""
    alice, bob, carol = (new_name(name) for name in ("alice", "bob", "carol"))
    await stack.add_users([alice, bob, carol])
    user = bearer(stack.token(alice))
    host = {**bearer(await make_key(stack, "act_as", "chats:write")), "X-Chat-As": alice}

    by_user = await client.post("/v1/chats", json={"members": [bob]}, headers=user)
    by_host = await client.post("/v1/chats", json={"members": [bob]}, headers=host)
    path = f"/v1/chats/{by_host.json()['chat']}/members"
    added = await client.post(path, json={"users": [carol]}, headers=host)

    assert (by_user.json()["members"], by_user.json()["invited"]) == ([alice], [bob])
    assert sorted(by_host.json()["members"]) == sorted([alice, bob])
    assert carol in added.json()["members"]


async def test_cursor_of_another_user_is_refused(
    stack: Stack, client: httpx.AsyncClient, new_name: NewName
) -> None:
    """A cursor is signed for the list of one user."""
    alice, bob, carol, dave = (new_name(name) for name in ("alice", "bob", "carol", "dave"))
    await stack.add_users([alice, bob, carol, dave])
    for other in (bob, carol):
        path = f"/v1/me/blocks/{other}"
        done = await client.put(path, headers=bearer(stack.token(alice)))
        assert done.status_code == 204, done.text

    first = await client.get("/v1/me/blocks?limit=1", headers=bearer(stack.token(alice)))
    path = f"/v1/me/blocks?limit=1&cursor={first.json()['next']}"
    second = await client.get(path, headers=bearer(stack.token(alice)))
    refused = await client.get(path, headers=bearer(stack.token(dave)))

    blocked = [each["user"] for page in (first, second) for each in page.json()["items"]]
    assert blocked == sorted([bob, carol])
    assert second.json()["next"] is None
    assert refused.status_code == 400
    assert "cursor" in refused.json()["detail"]


async def test_query_parameter_with_a_reserved_name_reaches_the_frame(
    stack: Stack, client: httpx.AsyncClient, new_name: NewName
) -> None:
    """`for` of a deletion is the field `scope` of its frame."""
    alice, bob = new_name("alice"), new_name("bob")
    await stack.add_users([alice, bob])
    user, other = bearer(stack.token(alice)), bearer(stack.token(bob))
    host = {**bearer(await make_key(stack, "act_as", "chats:write")), "X-Chat-As": alice}
    chat = (await client.put(f"/v1/direct-chats/{bob}", headers=host)).json()["chat"]
    path = f"/v1/chats/{chat}/messages"
    sent = await client.post(path, json={"body": "hello"}, headers=user)

    hidden = await client.delete(f"{path}/{sent.json()['seq']}?for=me", headers=user)

    assert hidden.status_code == 200, hidden.text
    assert (await client.get(path, headers=user)).json()["messages"][0]["body"] == ""
    assert (await client.get(path, headers=other)).json()["messages"][0]["body"] == "hello"
