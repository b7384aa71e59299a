"""Chats over HTTP: the same results and the same events as over the WebSocket."""

from __future__ import annotations

from typing import Any

from tests.integration.api.support import Caller, make_group, problem_of
from tests.support.rawchat import RawChat
from tests.support.stack import NewName, Stack


async def test_first_request_of_a_user_creates_the_account(
    caller: Caller, new_name: NewName
) -> None:
    """A valid token is enough. Then other users can open a chat with the user."""
    user, other = new_name("erin"), new_name("frank")
    me = (await caller(user).get("/v1/me")).json()

    found = await caller(other).put(f"/v1/direct-chats/{user}")
    missing = await caller(other).put(f"/v1/direct-chats/{new_name('nobody')}")

    assert me["user"] == user
    assert found.status_code == 200
    assert problem_of(missing) == (404, "not_found")


async def test_direct_chat_opened_over_http_is_the_same_over_the_socket(
    caller: Caller, alice: RawChat, bob: RawChat
) -> None:
    """Two users have one direct chat; the other user gets an event about it."""
    by_http = (await caller(alice.user).put(f"/v1/direct-chats/{bob.user}")).json()
    await bob.request("open_direct", user=alice.user)
    event = await bob.expect_frame("event", kind="chat", chat=by_http["chat"])

    by_socket = await bob.request("open_direct", user=alice.user)

    assert by_socket["chat"] == by_http
    assert event["info"] == by_http


async def test_group_changes_over_http_return_the_new_state(
    caller: Caller, stack: Stack, alice: RawChat, bob: RawChat, new_name: NewName
) -> None:
    """Each response to a create, rename, invite, role change or removal is the changed chat."""
    carol = new_name("carol")
    await stack.add_users([carol])
    owner = caller(alice.user)
    chat = await make_group(owner, bob.user, name="Club")

    renamed = (await owner.patch(f"/v1/chats/{chat}", json={"name": "Clan"})).json()
    invited = (await owner.post(f"/v1/chats/{chat}/members", json={"users": [carol]})).json()
    path = f"/v1/chats/{chat}/members/{carol}"
    promoted = (await owner.patch(path, json={"role": "admin"})).json()
    removed = (await owner.delete(path)).json()

    assert renamed["name"] == "Clan"
    assert invited["count"] == 3
    assert promoted["roles"] == {alice.user: "owner", carol: "admin"}
    assert removed["count"] == 2
    assert (await owner.get(f"/v1/chats/{chat}")).json() == removed
    entry = await bob.expect_frame("event", kind="update", chat=chat)
    assert entry["message"]["name"] == "Clan"


async def test_open_group_is_joined_and_left_over_http(
    caller: Caller, alice: RawChat, bob: RawChat, new_name: NewName
) -> None:
    """A group that is not open gets 404, like one that does not exist."""
    owner, guest = caller(alice.user), caller(new_name("guest"))
    chat = await make_group(owner, bob.user)

    early = await guest.post(f"/v1/chats/{chat}/join", json={})
    await owner.patch(f"/v1/chats/{chat}", json={"joining": "open"})
    joined = await guest.post(f"/v1/chats/{chat}/join", json={})
    left = await guest.post(f"/v1/chats/{chat}/leave", json={})

    assert problem_of(early) == (404, "not_found")
    assert (joined.status_code, joined.json()["count"]) == (200, 3)
    assert left.json()["members"] == []  # users who left cannot list members
    assert problem_of(await guest.get(f"/v1/chats/{chat}")) == (404, "not_found")


async def test_members_of_a_group_are_listed_in_pages_by_id(
    caller: Caller, stack: Stack, new_name: NewName
) -> None:
    """Each member is listed once with their role; a non-member gets 404."""
    user = new_name("hugo")
    others = sorted(new_name("member") for _ in range(4))
    await stack.add_users(others)
    client = caller(user)
    chat = await make_group(client, *others)

    first = (await client.get(f"/v1/chats/{chat}/members", params={"limit": 3})).json()
    query = {"limit": 3, "cursor": first["next"]}
    second = (await client.get(f"/v1/chats/{chat}/members", params=query)).json()
    outside = await caller(new_name("eve")).get(f"/v1/chats/{chat}/members")

    roles = {each["user"]: each["role"] for each in first["items"] + second["items"]}
    assert roles == dict.fromkeys(others, "member") | {user: "owner"}
    assert [each["user"] for each in first["items"] + second["items"]] == sorted([user, *others])
    assert (len(first["items"]), second["next"]) == (3, None)
    assert problem_of(outside) == (404, "not_found")


async def test_presence_over_http_is_returned_for_users_with_a_common_chat(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str, new_name: NewName
) -> None:
    """No subscription is needed. A stranger looks like a user who does not exist."""
    query = {"user": [bob.user, new_name("nobody")]}
    await bob.send(pair, "hi")

    to_alice = (await caller(alice.user).get("/v1/presence", params=query)).json()
    to_eve = (await caller(new_name("eve")).get("/v1/presence", params=query)).json()

    assert to_alice == {"items": [{"user": bob.user, "state": "online", "last_seen": None}]}
    assert to_eve == {"items": []}


async def test_profile_change_is_visible_to_users_with_a_common_chat(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str, new_name: NewName
) -> None:
    """Name and text change separately; strangers and blocked users do not see them."""
    mine, query = caller(bob.user), {"user": [bob.user, alice.user, new_name("nobody")]}
    await bob.send(pair, "hi")

    async def profiles_for(user: str) -> Any:
        answer = (await caller(user).get("/v1/users", params=query)).json()["items"]
        return {each["user"]: (each["name"], each["about"]) for each in answer}

    await mine.patch("/v1/me", json={"name": "Bob \u0410", "about": "at sea"})
    changed = await mine.patch("/v1/me", json={"name": " Bob B. "})
    profile = {"user": bob.user, "name": "Bob B.", "about": "at sea"}
    assert changed.json() == {**profile, "is_admin": False, "discoverable": False}
    assert await profiles_for(alice.user) == {
        bob.user: ("Bob B.", "at sea"),
        alice.user: (None, None),
    }
    assert await profiles_for(new_name("eve")) == {}

    await mine.patch("/v1/me", json={"about": None, "name": ""})
    assert await profiles_for(alice.user) == {bob.user: (None, None), alice.user: (None, None)}
    for wrong in ({"name": "a\nb"}, {"about": "x" * 1001}, {"role": "owner"}):
        assert problem_of(await mine.patch("/v1/me", json=wrong))[0] in (400, 413), wrong
    await mine.put(f"/v1/me/blocks/{alice.user}")
    assert await profiles_for(alice.user) == {alice.user: (None, None)}


async def test_invalid_chat_id_is_refused_by_field(caller: Caller) -> None:
    """Characters with a meaning in Redis keys are refused before any store is called."""
    client = caller("mallory")
    for path in ("/v1/chats/a%23b", "/v1/chats/%7Bp0%7D", "/v1/chats/" + "x" * 65):
        answer = await client.get(path)
        assert problem_of(answer) == (400, "bad_request")
        assert answer.json()["detail"].startswith("chat: ")


async def test_preview_shows_open_groups_to_users_who_may_join_only(
    caller: Caller, stack: Stack, alice: RawChat, bob: RawChat, new_name: NewName
) -> None:
    """For others, a group looks like one that does not exist, also when they try to join."""
    carol = new_name("carol")
    await stack.add_users([carol])
    owner, stranger = caller(alice.user), caller(bob.user)
    chat = await make_group(owner, carol, name="Club")
    direct = (await owner.put(f"/v1/direct-chats/{bob.user}")).json()["chat"]

    async def read_refusals(group: str) -> set[tuple[int, str]]:
        answers = [
            await stranger.get(f"/v1/chats/{group}/preview"),
            await stranger.post(f"/v1/chats/{group}/join", json={"ref": new_name("ref")}),
        ]
        return {(each.status_code, each.json()["detail"]) for each in answers}

    missing = await read_refusals("g-nosuchgroup")
    closed = await read_refusals(chat)
    await owner.patch(f"/v1/chats/{chat}", json={"joining": "open", "topic": "Chess"})
    opened = await stranger.get(f"/v1/chats/{chat}/preview")
    joined = await stranger.post(f"/v1/chats/{chat}/join", json={"ref": new_name("ref")})
    seen = await stranger.get(f"/v1/chats/{chat}/preview")
    await owner.put(f"/v1/chats/{chat}/bans/{bob.user}", json={"ref": new_name("ref")})
    banned = await read_refusals(chat)

    expected = {"chat": chat, "name": "Club", "topic": "Chess", "count": 2, "is_member": False}
    assert opened.json() == expected
    assert joined.status_code == 200
    assert seen.json() == {**expected, "count": 3, "is_member": True}
    assert len(missing) == 1
    assert missing == closed == banned
    assert problem_of(await stranger.get(f"/v1/chats/{direct}/preview")) == (404, "not_found")
