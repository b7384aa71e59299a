"""chat.v1: opening and creating chats, the chat list, read marks, typing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.rawchat import RawChat, get_refusal
from tests.support.stack import NewName, Stack


async def read_list_entry(user: RawChat, chat: str) -> dict[str, Any]:
    """Return a user's chat list entry for a chat; omitted counters are 0."""
    line = (await user.read_list())[chat]
    return {"top": 0, "read": 0, "unread": 0} | line


# ── direct chats ──────────────────────────────────────────────────────────────────────────────────


async def test_open_direct_returns_the_same_chat_to_both_users(
    alice: RawChat, bob: RawChat
) -> None:
    """Concurrent requests of both users create one chat, listed once for each."""
    answers = await asyncio.gather(
        *(alice.request("open_direct", user=bob.user) for _ in range(4)),
        *(bob.request("open_direct", user=alice.user) for _ in range(4)),
    )

    infos = [answer["chat"] for answer in answers]
    assert all(info == infos[0] for info in infos)
    assert infos[0]["kind"] == "direct"
    assert sorted(infos[0]["members"]) == sorted([alice.user, bob.user])
    await alice.send(infos[0]["chat"], "end")
    for side in (alice, bob):
        await side.expect_bodies(infos[0]["chat"], ["end"])
        assert len(side.of_type("event", kind="chat")) == 1
        assert side.of_type("event", kind="chat")[0]["info"] == infos[0]


async def test_direct_chat_without_a_message_is_listed_only_for_its_opener(
    alice: RawChat, bob: RawChat
) -> None:
    """The other user gets no list entry, event or typing signal before the first message."""
    chat = await alice.open_direct(bob.user)
    await alice.send_frame("typing", chat=chat, on=True)
    marker = await bob.create_group([alice.user], ref="marker")
    await bob.send(marker, "end")
    await bob.expect_bodies(marker, ["end"])

    assert chat in await alice.read_list()
    assert chat not in await bob.read_list()
    assert [each["chat"] for each in bob.of_type("event", kind="chat")] == [marker]
    assert bob.of_type("signal", kind="typing") == []

    await alice.send(chat, "hello")
    await bob.expect_bodies(chat, ["hello"])

    kinds = [each["kind"] for each in bob.of_type("event") if each.get("chat") == chat]
    assert kinds[0] == "chat"
    assert (await read_list_entry(bob, chat))["unread"] == 1
    await bob.send(chat, "hi")
    await alice.expect_bodies(chat, ["hello", "hi"])


async def test_direct_chat_that_both_opened_is_listed_for_both(
    alice: RawChat, bob: RawChat
) -> None:
    """It is listed without a message."""
    chat = await alice.open_direct(bob.user)

    await bob.request("open_direct", user=alice.user)

    assert chat in await bob.read_list()


# ── groups ────────────────────────────────────────────────────────────────────────────────────────


async def test_create_chat_reaches_every_member(
    stack: Stack, alice: RawChat, bob: RawChat, new_name: NewName
) -> None:
    """All members get the group and its messages in the same order."""
    async with stack.chat_of(new_name("carol")) as carol:
        answer = await alice.request(
            "create_chat", ref="g-1", members=[bob.user, carol.user], name="  Trip  "
        )
        info = answer["chat"]
        for side in (alice, bob, carol):
            event = await side.expect_frame("event", kind="chat")
            assert event["info"] == info
        for side in (alice, bob, carol):
            await side.send(info["chat"], f"from {side.user}")

        for side in (alice, bob, carol):
            await side.expect(lambda me: len(me.messages(info["chat"])) == 3)
        assert alice.messages() == bob.messages() == carol.messages()

    assert (info["kind"], info["name"]) == ("group", "Trip")
    assert set(info["members"]) == {alice.user, bob.user, carol.user}


# ── chat list ─────────────────────────────────────────────────────────────────────────────────────


async def test_chats_are_listed_by_newest_activity_in_pages(
    stack: Stack, alice: RawChat, new_name: NewName
) -> None:
    """Pages of any size have each chat once, the most recently active one first."""
    chats = []
    for number in range(7):
        async with stack.chat_of(new_name(f"peer{number}")) as peer:
            chats.append(await alice.open_direct(peer.user))
    for chat in (chats[3], chats[0], chats[5]):
        await alice.send(chat, "hello")
    expected = [chats[5], chats[0], chats[3], chats[6], chats[4], chats[2], chats[1]]

    for limit in (1, 2, 3, 7, 200):
        listed: list[str] = []
        window: dict[str, Any] = {}
        while True:
            page = await alice.request("chats", limit=limit, **window)
            listed += [line["chat"] for line in page["chats"]]
            assert page["more"] == ("next" in page)
            if not page["more"]:
                break
            assert len(page["chats"]) == limit
            window = {"after": page["next"]}

        assert listed == expected


async def test_chats_entry_has_the_newest_message_and_the_members(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """An entry has everything that a chat list shows."""
    await alice.send(pair, "one")
    await bob.send(pair, "two")
    await alice.expect(lambda me: len(me.messages()) == 2)

    line = (await alice.request("chats"))["chats"][0]

    assert (line["chat"], line["kind"], line["top"]) == (pair, "direct", 2)
    assert sorted(line["members"]) == sorted([alice.user, bob.user])
    assert line["last"] == alice.messages()[-1]


async def test_unread_and_last_ignore_changes_and_hidden_messages(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Edits, reactions and hidden messages are neither unread nor the last message."""
    await alice.send(pair, "one")
    await alice.send(pair, "two")
    await alice.request("edit", chat=pair, seq=1, ref="e1", body="uno")
    for number, emoji in enumerate(("👍", "🎉", "")):
        await bob.request("react", chat=pair, seq=2, ref=f"x{number}", emoji=emoji)
    line = await read_list_entry(bob, pair)
    assert (line["top"], line["unread"], line["last"]["seq"]) == (6, 2, 2)

    await bob.request("delete", chat=pair, seq=2, ref="d1", **{"for": "me"})

    assert (await read_list_entry(bob, pair))["last"]["body"] == "uno"
    assert (await read_list_entry(alice, pair))["last"]["body"] == "two"


# ── marks ─────────────────────────────────────────────────────────────────────────────────────────


async def test_mark_is_pushed_to_all_devices_of_all_members(
    stack: Stack, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """A read mark is an inbox event for the other user and for the user's own devices."""
    second = await stack.chat_of(bob.user, device="tablet").start()
    await alice.send(pair, "one")
    await bob.expect_bodies(pair, ["one"])

    assert (await bob.request("mark", chat=pair, read=1))["type"] == "ok"

    for device in (alice, bob, second):
        event = await device.expect_frame("event", kind="read")
        assert event["chat"] == pair
        assert event["read"] == {"user": bob.user, "read": 1, "received": 1}
    assert (await read_list_entry(alice, pair))["peer"]["read"] == 1
    await second.stop()


async def test_mark_without_id_is_not_answered(alice: RawChat, bob: RawChat, pair: str) -> None:
    """Without an `id` there is no `ok`, but the mark is applied."""
    await alice.send(pair, "one")
    await bob.expect_bodies(pair, ["one"])

    await bob.send_frame("mark", chat=pair, read=1)

    await alice.expect_frame("event", kind="read")
    assert bob.of_type("ok") == []


async def test_mark_without_a_position_is_refused(alice: RawChat, pair: str) -> None:
    """A mark needs `read` or `received`."""
    failed = await get_refusal(alice.request("mark", chat=pair))

    assert (failed.code, failed.message.startswith("read, received:")) == ("bad_request", True)


async def test_invalid_mark_without_id_gets_an_error(alice: RawChat, pair: str) -> None:
    """An invalid frame gets an error even without an `id`."""
    await alice.send_frame("mark", chat=pair)

    error = await alice.expect_frame("error")
    assert "id" not in error


# ── typing ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("on", [True, False])
async def test_typing_is_sent_to_the_other_user_only(
    alice: RawChat, bob: RawChat, pair: str, on: bool
) -> None:
    """A signal has no seq and gets no response."""
    await alice.send_frame("typing", chat=pair, on=on)

    signal = await bob.expect_frame("signal")

    assert signal == {
        "type": "signal", "kind": "typing", "chat": pair, "from": alice.user, "on": on,
    }  # fmt: skip
    await alice.request("chats")
    assert [f["type"] for f in alice.frames if f["type"] in {"ok", "signal", "error"}] == ["ok"]


async def test_typing_is_not_delivered_on_resume(
    stack: Stack, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Signals are ephemeral: they are not in the inbox."""
    await bob.abort()
    async with stack.chat_of(bob.user, device="tablet") as tablet:
        await alice.send_frame("typing", chat=pair, on=True)
        await tablet.expect_frame("signal")  # the signal has been sent

        await bob.start()

        await alice.send(pair, "end")
        await bob.expect_bodies(pair, ["end"])
    assert bob.of_type("signal") == []


async def test_state_gets_no_response(alice: RawChat) -> None:
    """A state change is accepted without a response or an error."""
    await alice.send_frame("state", state="bg")
    await alice.send_frame("state", state="fg")

    await alice.request("chats")
    assert [frame["type"] for frame in alice.frames] == ["welcome", "page"]
