"""chat.v1: opening and creating chats, the chat list, read marks, typing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.rawchat import Failed, RawChat
from tests.support.servers.processes import eventually
from tests.support.stack import Stack

pytest_plugins = ["tests.support.stack_fixtures"]

NewName = Callable[[str], str]


async def refusal(who: RawChat, type_: str, **fields: Any) -> Failed:
    """Return the error that a request is answered with."""
    with pytest.raises(Failed) as caught:
        await who.ask(type_, **fields)
    return caught.value


async def line_of(user: RawChat, chat: str) -> dict[str, Any]:
    """Return a user's line of a chat in the chat list; what is 0 is filled in."""
    line = (await user.read_list())[chat]
    return {"top": 0, "read": 0, "unread": 0} | line


# ── direct chats ────────────────────────────────────────────────────────────────────────────────


async def test_open_direct_is_the_same_chat_for_both_and_always(
    alice: RawChat, bob: RawChat
) -> None:
    """Whoever opens it, also concurrently: one chat, in each list once."""
    answers = await asyncio.gather(
        *(alice.ask("open_direct", user=bob.user) for _ in range(4)),
        *(bob.ask("open_direct", user=alice.user) for _ in range(4)),
    )

    infos = [answer["chat"] for answer in answers]
    assert all(info == infos[0] for info in infos)
    assert infos[0]["kind"] == "direct"
    assert sorted(infos[0]["members"]) == sorted([alice.user, bob.user])
    await alice.say(infos[0]["chat"], "end")
    for side in (alice, bob):
        await side.expect_bodies(infos[0]["chat"], ["end"])
        assert len(side.of_type("event", kind="chat")) == 1
        assert side.of_type("event", kind="chat")[0]["info"] == infos[0]


async def test_direct_chat_without_a_message_is_known_to_its_opener_only(
    alice: RawChat, bob: RawChat
) -> None:
    """Opening a chat with a stranger puts nothing into their list or inbox, and no typing."""
    chat = (await alice.ask("open_direct", user=bob.user))["chat"]["chat"]
    await alice.tell("typing", chat=chat, on=True)
    marker = (await bob.ask("create_chat", ref="marker", members=[alice.user]))["chat"]["chat"]
    await bob.say(marker, "end")
    await bob.expect_bodies(marker, ["end"])

    assert chat in await alice.read_list()
    assert chat not in await bob.read_list()
    assert [each["chat"] for each in bob.of_type("event", kind="chat")] == [marker]
    assert bob.of_type("signal", kind="typing") == []

    await alice.say(chat, "hello")
    await bob.expect_bodies(chat, ["hello"])

    kinds = [each["kind"] for each in bob.of_type("event") if each.get("chat") == chat]
    assert kinds[0] == "chat"
    assert (await line_of(bob, chat))["unread"] == 1
    await bob.say(chat, "hi")
    await alice.expect_bodies(chat, ["hello", "hi"])


async def test_direct_chat_is_listed_for_the_other_who_opens_it_too(
    alice: RawChat, bob: RawChat
) -> None:
    """Both have opened it: both have it, without a message."""
    chat = (await alice.ask("open_direct", user=bob.user))["chat"]["chat"]

    await bob.ask("open_direct", user=alice.user)

    assert chat in await bob.read_list()


async def test_open_direct_with_oneself_is_refused(alice: RawChat) -> None:
    """A direct chat has two sides."""
    failed = await refusal(alice, "open_direct", user=alice.user)

    assert failed.code == "bad_request"
    assert failed.message.startswith("user:")


async def test_open_direct_with_nobody_is_not_found(alice: RawChat, new_name: NewName) -> None:
    """There is no chat with a user who does not exist."""
    assert (await refusal(alice, "open_direct", user=new_name("nobody"))).code == "not_found"


# ── groups ──────────────────────────────────────────────────────────────────────────────────────


async def test_create_chat_reaches_every_member(
    stack: Stack, alice: RawChat, bob: RawChat, new_name: NewName
) -> None:
    """All members see the group and get its messages in one order."""
    async with stack.chat_of(new_name("carol")) as carol:
        answer = await alice.ask(
            "create_chat", ref="g-1", members=[bob.user, carol.user], name="  Trip  "
        )
        info = answer["chat"]
        for side in (alice, bob, carol):
            event = await side.expect_frame("event", kind="chat")
            assert event["info"] == info
        for side in (alice, bob, carol):
            await side.say(info["chat"], f"from {side.user}")

        for side in (alice, bob, carol):
            await side.expect(lambda me: len(me.messages(info["chat"])) == 3)
        assert alice.messages() == bob.messages() == carol.messages()

    assert (info["kind"], info["name"]) == ("group", "Trip")
    assert set(info["members"]) == {alice.user, bob.user, carol.user}


async def test_create_chat_again_with_the_same_ref_is_the_same_group(
    alice: RawChat, bob: RawChat
) -> None:
    """A repeat finds the group that was made, and lists it nowhere twice."""
    fields = {"ref": "g-1", "members": [bob.user], "name": "Trip"}
    first = await alice.ask("create_chat", **fields)

    again = await alice.ask("create_chat", **fields)

    assert again["chat"] == first["chat"]
    await alice.say(first["chat"]["chat"], "end")
    await bob.expect_bodies(first["chat"]["chat"], ["end"])
    assert len(bob.of_type("event", kind="chat")) == 1


async def test_create_chat_with_another_ref_is_another_group(alice: RawChat, bob: RawChat) -> None:
    """Two groups may have the same members."""
    one = await alice.ask("create_chat", ref="g-1", members=[bob.user])
    two = await alice.ask("create_chat", ref="g-2", members=[bob.user])
    yours = await bob.ask("create_chat", ref="g-1", members=[alice.user])

    assert len({answer["chat"]["chat"] for answer in (one, two, yours)}) == 3
    assert "name" not in one["chat"]


async def test_create_chat_of_another_group_under_the_ref_is_a_conflict(
    stack: Stack, alice: RawChat, bob: RawChat, new_name: NewName
) -> None:
    """A ref stands for one group."""
    async with stack.chat_of(new_name("carol")) as carol:
        await alice.ask("create_chat", ref="g-1", members=[bob.user])

        failed = await refusal(alice, "create_chat", ref="g-1", members=[bob.user, carol.user])

    assert failed.code == "conflict"


async def test_create_chat_of_wrong_members_is_refused(
    alice: RawChat, bob: RawChat, new_name: NewName
) -> None:
    """Each member once, somebody else among them, all of them known."""
    twice = await refusal(alice, "create_chat", ref="g-1", members=[bob.user, bob.user])
    alone = await refusal(alice, "create_chat", ref="g-2", members=[alice.user])
    nobody = await refusal(alice, "create_chat", ref="g-3", members=[bob.user, new_name("ghost")])

    assert (twice.code, alone.code, nobody.code) == ("bad_request", "bad_request", "not_found")
    assert twice.message.startswith("members:")
    assert alone.message.startswith("members:")
    assert await bob.read_list() == {}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", "bad_request"),
        ("   ", "bad_request"),
        ("x" * 81, "too_large"),
        ("line\nbreak", "bad_request"),
        ("tab\t", "ok"),
        ("x" * 80, "ok"),
        ("rtl \u202e", "bad_request"),
        ("nul \x00", "bad_request"),
    ],
    ids=["empty", "blank", "long", "line", "stripped", "longest", "direction", "nul"],
)
async def test_create_chat_name_has_bounds(
    alice: RawChat, bob: RawChat, name: str, code: str
) -> None:
    """A name is one line of 1 to 80 characters that cannot change the text direction."""
    fields = {"ref": "g-1", "members": [bob.user], "name": name}
    if code == "ok":
        assert (await alice.ask("create_chat", **fields))["chat"]["name"] == name.strip()
        return

    failed = await refusal(alice, "create_chat", **fields)

    assert (failed.code, failed.message.startswith("name:")) == (code, True)


# ── the list ────────────────────────────────────────────────────────────────────────────────────


async def test_chats_of_a_new_user_are_none(alice: RawChat) -> None:
    """An empty list is a page like others."""
    page = await alice.ask("chats")

    assert (page["chats"], page["more"]) == ([], False)
    assert "next" not in page


async def test_chats_are_listed_by_newest_activity_in_pages(
    stack: Stack, alice: RawChat, new_name: NewName
) -> None:
    """Pages join without hole or repeat, the chat that was last written to first."""
    chats = []
    for number in range(7):
        async with stack.chat_of(new_name(f"peer{number}")) as peer:
            chats.append((await alice.ask("open_direct", user=peer.user))["chat"]["chat"])
    for chat in (chats[3], chats[0], chats[5]):
        await alice.say(chat, "hello")
    expected = [chats[5], chats[0], chats[3], chats[6], chats[4], chats[2], chats[1]]

    for limit in (1, 2, 3, 7, 200):
        listed: list[str] = []
        window: dict[str, Any] = {}
        while True:
            page = await alice.ask("chats", limit=limit, **window)
            listed += [line["chat"] for line in page["chats"]]
            assert page["more"] == ("next" in page)
            if not page["more"]:
                break
            assert len(page["chats"]) == limit
            window = {"after": page["next"]}

        assert listed == expected


async def test_chats_line_tells_the_newest_message_and_who_is_there(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """A line has what a list of chats shows, without further requests."""
    await alice.say(pair, "one")
    await bob.say(pair, "two")
    await alice.expect(lambda me: len(me.messages()) == 2)

    line = (await alice.ask("chats"))["chats"][0]

    assert (line["chat"], line["kind"], line["top"]) == (pair, "direct", 2)
    assert sorted(line["members"]) == sorted([alice.user, bob.user])
    assert line["last"] == alice.messages()[-1]


async def test_unread_counts_what_others_sent_since_the_mark(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Own messages are read; those of others are not until they are marked."""
    for number in range(3):
        await alice.say(pair, f"m{number}")
    await bob.expect(lambda me: len(me.messages()) == 3)
    assert ((await line_of(alice, pair))["unread"], (await line_of(bob, pair))["unread"]) == (0, 3)

    await bob.ask("mark", chat=pair, read=2)
    assert (await line_of(bob, pair))["unread"] == 1

    await bob.say(pair, "answer")
    assert (await line_of(bob, pair))["unread"] == 0
    assert (await line_of(alice, pair))["unread"] == 1


async def test_unread_does_not_count_messages_that_the_user_cannot_see(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Deleted messages are not unread, whoever deleted them; each is subtracted once."""
    for number in range(4):
        await alice.say(pair, f"m{number}")
    await alice.ask("delete", chat=pair, seq=1, ref="d1")
    assert (await line_of(bob, pair))["unread"] == 3

    await bob.ask("delete", chat=pair, seq=2, ref="d2", **{"for": "me"})
    assert (await line_of(bob, pair))["unread"] == 2

    await alice.ask("delete", chat=pair, seq=2, ref="d3")
    await alice.ask("delete", chat=pair, seq=3, ref="d4")
    await alice.ask("delete", chat=pair, seq=4, ref="d5")
    assert (await line_of(bob, pair))["unread"] == 0


async def test_unread_and_last_are_of_messages_alone(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Changes of messages and hidden messages are neither unread nor the last message."""
    await alice.say(pair, "one")
    await alice.say(pair, "two")
    await alice.ask("edit", chat=pair, seq=1, ref="e1", body="uno")
    for number, emoji in enumerate(("👍", "🎉", "")):
        await bob.ask("react", chat=pair, seq=2, ref=f"x{number}", emoji=emoji)
    line = await line_of(bob, pair)
    assert (line["top"], line["unread"], line["last"]["seq"]) == (6, 2, 2)

    await bob.ask("delete", chat=pair, seq=2, ref="d1", **{"for": "me"})

    assert (await line_of(bob, pair))["last"]["body"] == "uno"
    assert (await line_of(alice, pair))["last"]["body"] == "two"


# ── marks ───────────────────────────────────────────────────────────────────────────────────────


async def test_mark_is_told_to_all_devices_of_all_members(
    stack: Stack, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """A read mark is an event with a place, for the other side and for one's own devices."""
    second = await stack.chat_of(bob.user, device="tablet").start()
    await alice.say(pair, "one")
    await bob.expect_bodies(pair, ["one"])

    assert (await bob.ask("mark", chat=pair, read=1))["type"] == "ok"

    for device in (alice, bob, second):
        event = await device.expect_frame("event", kind="read")
        assert event["chat"] == pair
        assert event["read"] == {"user": bob.user, "read": 1, "received": 1}
    assert (await line_of(alice, pair))["peer"]["read"] == 1
    await second.stop()


async def test_mark_moves_forward_only_and_not_beyond_the_head(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Late and wild marks do nothing harmful."""
    for number in range(5):
        await alice.say(pair, f"m{number}")
    await bob.expect(lambda me: len(me.messages()) == 5)
    reached = []
    for read in (3, 1, 3, 0, 1_000_000, 2):
        await bob.ask("mark", chat=pair, read=read)
        reached.append((await line_of(bob, pair))["read"])

    assert reached == [3, 3, 3, 3, 5, 5]
    await alice.expect_frame(
        "event", kind="read", read={"user": bob.user, "read": 5, "received": 5}
    )
    assert len(alice.of_type("event", kind="read")) == 2


async def test_mark_received_does_not_read(alice: RawChat, bob: RawChat, pair: str) -> None:
    """That a message reached a device does not mean that anybody saw it."""
    await alice.say(pair, "one")
    await bob.expect_bodies(pair, ["one"])

    await bob.ask("mark", chat=pair, received=1)

    event = await alice.expect_frame("event", kind="read")
    assert event["read"] == {"user": bob.user, "received": 1}
    assert (await line_of(bob, pair))["unread"] == 1


async def test_mark_without_id_is_not_answered(alice: RawChat, bob: RawChat, pair: str) -> None:
    """Without an `id` there is no `ok`; the mark moves all the same."""
    await alice.say(pair, "one")
    await bob.expect_bodies(pair, ["one"])

    await bob.tell("mark", chat=pair, read=1)

    await alice.expect_frame("event", kind="read")
    assert bob.of_type("ok") == []


async def test_mark_of_nothing_is_refused(alice: RawChat, pair: str) -> None:
    """A mark needs a position."""
    failed = await refusal(alice, "mark", chat=pair)

    assert (failed.code, failed.message.startswith("read, received:")) == ("bad_request", True)


async def test_mark_of_nothing_without_id_is_an_error_too(alice: RawChat, pair: str) -> None:
    """An invalid frame gets an error even if it requests no response."""
    await alice.tell("mark", chat=pair)

    error = await alice.expect_frame("error")
    assert "id" not in error


async def test_mark_reaches_the_directory(
    stack: Stack, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Marks are moved to DynamoDB with the messages."""
    await alice.say(pair, "one")
    await bob.expect_bodies(pair, ["one"])

    await bob.ask("mark", chat=pair, read=1)

    async def is_stored() -> bool:
        return (await stack.read_marks(pair))[bob.user] == (1, 1)

    await eventually(is_stored)


# ── typing ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("on", [True, False])
async def test_typing_reaches_the_others_and_not_oneself(
    alice: RawChat, bob: RawChat, pair: str, on: bool
) -> None:
    """A signal: shown to the other side, no seq, no answer."""
    await alice.tell("typing", chat=pair, on=on)

    signal = await bob.expect_frame("signal")

    assert signal == {
        "type": "signal", "kind": "typing", "chat": pair, "from": alice.user, "on": on,
    }  # fmt: skip
    await alice.ask("chats")
    assert [f["type"] for f in alice.frames if f["type"] in {"ok", "signal", "error"}] == ["ok"]


async def test_typing_is_not_repeated_to_who_comes_back(
    stack: Stack, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """A signal is of the moment: it is not in the inbox."""
    await bob.abort()
    async with stack.chat_of(bob.user, device="tablet") as tablet:
        await alice.tell("typing", chat=pair, on=True)
        await tablet.expect_frame("signal")  # the moment is over

        await bob.start()

        await alice.say(pair, "end")
        await bob.expect_bodies(pair, ["end"])
    assert bob.of_type("signal") == []


async def test_state_is_taken_without_an_answer(alice: RawChat) -> None:
    """A change of the state has no visible effect yet, and is no error."""
    await alice.tell("state", state="bg")
    await alice.tell("state", state="fg")

    await alice.ask("chats")
    assert [frame["type"] for frame in alice.frames] == ["welcome", "page"]
