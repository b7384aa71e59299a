"""Chat preferences over HTTP: private to a user, synchronized to devices, concurrency-safe."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import httpx
import pytest

from tests.integration.api.support import Caller, make_group, problem_of, send
from tests.support.rawchat import RawChat

Fields = dict[str, Any]
LIST, PINNED = "/v1/me/chat-preferences", "/v1/me/pinned-chats"
DEFAULTS: Fields = {
    "archived": False,
    "muted_until": None,
    "marked_unread": False,
    "draft": None,
    "cleared_upto": 0,
}


def path_of(chat: str) -> str:
    return f"/v1/chats/{chat}/preferences"


async def change(client: httpx.AsyncClient, chat: str, **fields: Any) -> Fields:
    """Change preferences; return them without `chat` and `rev`."""
    answer = await client.patch(path_of(chat), json=fields)
    assert answer.status_code == 200, answer.text
    return without_ids(answer.json())


def without_ids(preferences: Fields) -> Fields:
    return {name: value for name, value in preferences.items() if name not in ("chat", "rev")}


async def test_preferences_are_private_and_signaled_to_own_devices(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Alice's devices get a signal. Bob's preferences do not change, and Bob gets no signal."""
    alice_http, bob_http = caller(alice.user), caller(bob.user)
    draft = {"text": "See you at", "version": 7}

    assert without_ids((await alice_http.get(path_of(pair))).json()) == DEFAULTS
    first = await change(alice_http, pair, archived=True, muted_until=0, draft=draft)
    second = await change(alice_http, pair, archived=False, marked_unread=True)
    signal = await alice.expect_frame(
        "signal", kind="chat_preferences", preferences=(await alice_http.get(path_of(pair))).json()
    )

    assert first == {**DEFAULTS, "archived": True, "muted_until": 0, "draft": draft}
    assert second == {**first, "archived": False, "marked_unread": True}
    assert (signal["from"], signal["preferences"]["chat"]) == (alice.user, pair)
    listed = [each for each in (await alice_http.get(LIST)).json()["items"] if each["chat"] == pair]
    assert listed == [signal["preferences"]]
    assert without_ids((await bob_http.get(path_of(pair))).json()) == DEFAULTS
    assert not bob.of_type("signal", kind="chat_preferences")


async def test_older_draft_and_lower_cleared_upto_are_ignored(
    caller: Caller, alice: RawChat, pair: str
) -> None:
    """The highest version wins, whatever the order of the requests."""
    alice_http = caller(alice.user)
    for text in ("one", "two"):
        await send(alice_http, pair, text)

    newest = await change(alice_http, pair, draft={"text": "", "version": 9}, cleared_upto=2)
    late = await change(alice_http, pair, draft={"text": "old", "version": 8}, cleared_upto=1)

    assert newest == late
    assert (late["draft"], late["cleared_upto"]) == ({"text": "", "version": 9}, 2)
    beyond = await alice_http.patch(path_of(pair), json={"cleared_upto": 3})
    assert problem_of(beyond) == (400, "bad_request")
    assert "at most 2" in beyond.json()["detail"]


async def test_cleared_messages_are_hidden_from_the_user_only(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """History and chat list have no text and no unread count. A chat can be cleared again."""
    alice_http, bob_http = caller(alice.user), caller(bob.user)
    for text in ("one", "two", "three"):
        await send(bob_http, pair, text)

    await change(alice_http, pair, cleared_upto=1)
    await change(alice_http, pair, cleared_upto=2)
    left, all_ = await list_texts(alice_http, pair), await list_texts(bob_http, pair)
    (listed,) = [each for each in await list_chats(alice_http) if each["chat"] == pair]
    await change(alice_http, pair, cleared_upto=3)
    (cleared,) = [each for each in await list_chats(alice_http) if each["chat"] == pair]
    await send(bob_http, pair, "four")

    assert left == ["", "", "three"]
    assert all_ == ["one", "two", "three"]
    assert (listed["unread"], listed["last"]["body"]) == (1, "three")
    assert (cleared.get("unread", 0), cleared.get("last")) == (0, None)
    assert await list_texts(alice_http, pair) == ["", "", "", "four"]
    (fresh,) = [each for each in await list_chats(alice_http) if each["chat"] == pair]
    assert (fresh["unread"], fresh["last"]["body"]) == (1, "four")


async def list_texts(client: httpx.AsyncClient, chat: str) -> list[str]:
    answer = await client.get(f"/v1/chats/{chat}/messages", params={"after": 0})
    return [each["body"] for each in answer.json()["messages"]]


async def list_chats(client: httpx.AsyncClient) -> list[Fields]:
    items: list[Fields] = (await client.get("/v1/chats")).json()["items"]
    return items


async def test_mute_is_shared_with_the_notifications_route(
    caller: Caller, alice: RawChat, pair: str
) -> None:
    """Both routes read and write the same value; an expired mute is removed."""
    alice_http, notifications = caller(alice.user), f"/v1/chats/{pair}/notifications"
    await send(alice_http, pair, "hello")

    await change(alice_http, pair, muted_until=9_999_999_999)
    by_preference = (await alice_http.get(notifications)).json()
    await alice_http.put(notifications, json={"quiet": True})
    by_route = without_ids((await alice_http.get(path_of(pair))).json())
    expired = await change(alice_http, pair, muted_until=1)

    assert by_preference == {"quiet": True, "until": 9_999_999_999}
    assert by_route["muted_until"] == 0
    assert expired["muted_until"] is None
    assert (await alice_http.get(notifications)).json()["quiet"] is False


async def test_concurrent_changes_of_different_preferences_are_all_kept(
    caller: Caller, alice: RawChat, pair: str
) -> None:
    """Devices do not overwrite each other's changes."""
    alice_http = caller(alice.user)

    await asyncio.gather(
        change(alice_http, pair, archived=True),
        change(alice_http, pair, marked_unread=True),
        change(alice_http, pair, draft={"text": "Hi", "version": 1}),
    )

    kept = without_ids((await alice_http.get(path_of(pair))).json())
    assert (kept["archived"], kept["marked_unread"], kept["draft"]["text"]) == (True, True, "Hi")


async def test_list_is_paged_and_omits_defaults(
    caller: Caller, alice: RawChat, bob: RawChat
) -> None:
    """A chat whose preferences are the defaults is not listed."""
    alice_http = caller(alice.user)
    before = {each["chat"] for each in (await alice_http.get(LIST)).json()["items"]}
    chats = [await make_group(alice_http, bob.user) for _ in range(3)]
    for chat in chats:
        await change(alice_http, chat, archived=True)
    await change(alice_http, chats[0], archived=False)

    found: list[str] = []
    query: dict[str, Any] = {"limit": 1}
    for _ in itertools.count():
        page = (await alice_http.get(LIST, params=query)).json()
        found += [each["chat"] for each in page["items"]]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]

    assert sorted(set(found) - before) == sorted(chats[1:])
    assert len(found) == len(set(found))


async def test_pinned_chats_keep_their_order_and_refuse_a_stale_change(
    caller: Caller, alice: RawChat
) -> None:
    """A device with an outdated list cannot remove pins of another device."""
    alice_http = caller(alice.user)
    start = (await alice_http.get(PINNED)).json()

    first = (
        await alice_http.put(PINNED, json={"chats": ["g-b", "g-a"], "if_rev": start["rev"]})
    ).json()
    stale = await alice_http.put(PINNED, json={"chats": ["g-c"], "if_rev": start["rev"]})
    signal = await alice.expect_frame("signal", kind="pinned_chats", pinned=first)

    assert first["chats"] == ["g-b", "g-a"]
    assert first["rev"] > start["rev"]
    assert problem_of(stale) == (409, "conflict")
    assert signal["from"] == alice.user
    assert (await alice_http.get(PINNED)).json() == first
    assert (await alice_http.put(PINNED, json={"chats": []})).json()["chats"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"draft": {"text": "x" * 4_001, "version": 1}},
        {"draft": {"text": "x"}},
        {"draft": None},
        {"muted_until": -1},
        {"muted_until": 2**53},
        {"cleared_upto": -1},
        {"archived": "yes"},
        {"rev": 1},
    ],
)
async def test_invalid_preferences_are_refused_by_field(
    caller: Caller, alice: RawChat, pair: str, body: Fields
) -> None:
    """The error names the field."""
    answer = await caller(alice.user).patch(path_of(pair), json=body)

    assert problem_of(answer) == (400, "bad_request")
    assert next(iter(body)) in answer.json()["detail"]


@pytest.mark.parametrize("chats", [["a", "a"], [f"g-{n}" for n in range(51)], ["a b"]])
async def test_invalid_pinned_chats_are_refused(
    caller: Caller, alice: RawChat, chats: list[str]
) -> None:
    """A repeated chat, more than 50 chats and an invalid id are refused."""
    answer = await caller(alice.user).put(PINNED, json={"chats": chats})

    assert problem_of(answer) == (400, "bad_request")


async def test_stranger_gets_not_found(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """The response is the same as for a chat that does not exist."""
    stranger = caller(f"eve-{alice.user}")

    answers = [
        await stranger.get(path_of(pair)),
        await stranger.patch(path_of(pair), json={"archived": True}),
        await stranger.patch(path_of(pair), json={"muted_until": 0}),
    ]

    assert [problem_of(each) for each in answers] == [(404, "not_found")] * 3
