"""chat.v1: membership, roles and settings of groups; non-members receive nothing."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from chatserver.dev.servers import Server
from tests.support.rawchat import Failed, RawChat, get_refusal
from tests.support.servers.processes import eventually
from tests.support.stack import NewName, Stack


async def read(device: RawChat, chat: str, **window: Any) -> list[dict[str, Any]]:
    """Return the messages of a page of history."""
    messages: list[dict[str, Any]] = (await device.request("history", chat=chat, **window))[
        "messages"
    ]
    return messages


def list_entries(device: RawChat, chat: str) -> list[tuple[str, Any, Any]]:
    """Return the entries of a chat that a device received, as (kind, user or body, role)."""
    return [
        (event["kind"], entry.get("user", entry["body"]), entry.get("role"))
        for event in device.of_type("event", chat=chat)
        if (entry := event.get("message"))
    ]


@pytest.fixture(scope="module")
def second(stack: Stack) -> Server:
    """A second gateway of the stack."""
    return stack.start_gateway()


@pytest.fixture
async def carol(stack: Stack, second: Server, new_name: NewName) -> AsyncIterator[RawChat]:
    """A device of a third user, on the other gateway."""
    async with stack.chat_of(new_name("carol"), port=second.port) as chat:
        yield chat


async def test_invited_member_sees_later_entries_and_members_see_the_invitation(
    alice: RawChat, bob: RawChat, carol: RawChat, group: str
) -> None:
    """History and unread count of the new member start with the invitation."""
    await alice.send(group, "before")

    info = await alice.change("invite", group, users=[carol.user])
    await bob.send(group, "after")

    assert sorted(info["members"]) == sorted([alice.user, bob.user, carol.user])
    assert (info["count"], info["roles"]) == (3, {alice.user: "owner"})
    event = await carol.expect_frame("event", kind="chat", chat=group)
    assert event["info"] == info
    for device in (alice, bob):
        await device.expect(lambda me: len(list_entries(me, group)) == 3)
        assert list_entries(device, group)[1] == ("member", carol.user, "member")
    await carol.expect(lambda me: len(list_entries(me, group)) == 2)
    assert list_entries(carol, group) == [
        ("member", carol.user, "member"),
        ("message", "after", None),
    ]
    entry = (await read(carol, group))[0]
    assert (entry["seq"], entry["kind"], entry["sender"]) == (2, "member", alice.user)
    assert [each["seq"] for each in await read(carol, group, after=0)] == [2, 3]
    assert await read(carol, group, before=2) == []
    assert (await carol.read_list())[group]["unread"] == 1
    assert [each["seq"] for each in await read(alice, group)] == [1, 2, 3]


async def test_change_of_a_message_from_before_joining_is_delivered_without_text(
    alice: RawChat, bob: RawChat, carol: RawChat, group: str
) -> None:
    """The entry keeps its seq but has no text: live, after a reconnect and in history."""
    before = (await alice.send(group, "before"))["seq"]
    await alice.change("invite", group, users=[carol.user])
    after = (await alice.send(group, "after"))["seq"]

    await alice.request("edit", chat=group, seq=before, ref="e1", body="the whole text")
    await alice.request("react", chat=group, seq=before, ref="r1", emoji="👍")
    await carol.expect(lambda me: len(list_entries(me, group)) == 4)
    await carol.abort()
    await alice.request("edit", chat=group, seq=before, ref="e2", body="again, the whole text")
    await alice.request("edit", chat=group, seq=after, ref="e3", body="after, but better")
    await carol.reconnect()
    await carol.expect(lambda me: len(list_entries(me, group)) == 6)

    assert [(kind, body) for kind, body, _ in list_entries(carol, group)[2:]] == [
        ("edit", ""),
        ("reaction", ""),
        ("edit", ""),
        ("edit", "after, but better"),
    ]
    rows = await read(carol, group, after=0)
    assert [row["seq"] for row in rows] == [2, 3, 4, 5, 6, 7]
    assert [row["body"] for row in rows[2:]] == ["", "", "", "after, but better"]
    assert [row.get("deleted") for row in rows[2:]] == [True, True, True, None]
    assert [row["body"] for row in await read(bob, group, after=4)] == [
        "👍", "again, the whole text", "after, but better"
    ]  # fmt: skip
    await alice.change("update_chat", group, history="all")
    assert (await read(carol, group, after=5))[0]["body"] == "again, the whole text"


async def test_removed_member_gets_the_removal_and_no_later_entry(
    stack: Stack, alice: RawChat, bob: RawChat, group: str
) -> None:
    """There is no push, history, typing or list entry; `sync` still returns earlier entries."""
    await alice.send(group, "before")
    await bob.expect(lambda me: me.messages(group))
    await alice.change("remove", group, user=bob.user)
    await alice.send(group, "secret")
    await alice.send_frame("typing", chat=group, on=True)

    await bob.expect(lambda me: ("member", bob.user, "") in list_entries(me, group))
    for type_, fields in (("history", {}), ("send", {"ref": "x", "body": "hello?"})):
        results = await asyncio.gather(
            bob.request(type_, chat=group, **fields), return_exceptions=True
        )
        assert isinstance(results[0], Failed)
        assert results[0].code == "not_found"
    assert group not in await bob.read_list()
    assert (await get_refusal(bob.change("leave", group))).code == "not_found"
    async with stack.chat_of(bob.user, device="bob-2") as again:
        cursor = {"epoch": again.welcome["epoch"], "seq": 0}
        page = await again.request("sync", cursor=cursor, limit=100)
        last = [event for event in page["events"] if event["chat"] == group][-1]
        assert (last["kind"], last["message"]["user"]) == ("member", bob.user)
    assert not bob.of_type("signal")
    assert list_entries(bob, group)[-1] == ("member", bob.user, "")


async def test_join_is_allowed_only_if_the_chat_is_open(
    alice: RawChat, carol: RawChat, group: str
) -> None:
    """Joining a closed group gets the same error as a chat that does not exist."""
    assert (await get_refusal(carol.change("join", group))).code == "not_found"

    info = await alice.change("update_chat", group, joining="open", name="  Open Trip  ")
    await carol.change("join", group)

    assert (info["joining"], info["name"]) == ("open", "Open Trip")
    await carol.send(group, "hi")
    await alice.expect(lambda me: ("message", "hi", None) in list_entries(me, group))
    update = alice.of_type("event", kind="update", chat=group)[0]["message"]
    assert (update["name"], update["body"]) == ("Open Trip", '{"joining":"open"}')
    assert (await carol.read_list())[group]["name"] == "Open Trip"


# ── a member who sends while being removed ──────────────────────────────────────────────────

CHATS, SENDERS = 50, 4
PAUSE_S = 0.003  # between two sends of one member


@dataclasses.dataclass
class Race:
    """Outcomes of one member's sends to one chat."""

    acked: dict[str, int] = dataclasses.field(default_factory=dict)  # maps each ref to its seq
    is_removed: bool = False  # set when the owner has received `ok`
    # Refs of messages that were sent later and acked.
    after_ok: list[str] = dataclasses.field(default_factory=list)

    def is_sending(self) -> bool:
        """Return whether more than two sends were acked."""
        return len(self.acked) > 2


async def keep_sending(member: RawChat, chat: str, race: Race) -> None:
    """Send one message after another until the server refuses."""
    for number in itertools.count():
        ref, was_removed = f"{chat[-6:]}-{member.user}-{number}", race.is_removed
        try:
            ack = await member.send_unrecorded(chat, ref, ref)
        except Failed as failed:
            if failed.code == "not_found":
                return
            assert failed.is_temporary, failed
            await asyncio.sleep(0.01)  # rate limited
        else:
            race.acked[ref] = ack["seq"]
            if was_removed:
                race.after_ok.append(ref)
            await asyncio.sleep(PAUSE_S)


async def test_no_send_is_committed_after_the_removal_of_its_sender(
    stack: Stack, second: Server, alice: RawChat, new_name: NewName
) -> None:
    """200 removals while another gateway, which has the chat loaded, accepts sends (P7)."""
    names = [new_name("racer") for _ in range(SENDERS)]
    races: dict[tuple[str, str], Race] = {}

    async def run(chat: str, members: list[RawChat]) -> None:
        for member in members:
            race = races[chat, member.user] = Race()
            ref = f"warm-{chat[-6:]}-{member.user}"
            race.acked[ref] = (await member.send_unrecorded(chat, ref, ref))["seq"]
            sending = asyncio.create_task(keep_sending(member, chat, race))
            await eventually(race.is_sending)
            await alice.change("remove", chat, user=member.user)
            race.is_removed = True
            await sending

    async with contextlib.AsyncExitStack() as open_devices:
        members = [
            await open_devices.enter_async_context(stack.chat_of(name, port=second.port))
            for name in names
        ]
        chats = []
        for number in range(CHATS):
            chats.append(await alice.create_group(names, ref=f"race-{number}"))
        slots = asyncio.Semaphore(4)

        async def run_in_turn(chat: str) -> None:
            async with slots:
                await run(chat, members)

        await asyncio.gather(*(run_in_turn(chat) for chat in chats))

    assert len(races) == CHATS * SENDERS >= 200
    assert [race.after_ok for race in races.values() if race.after_ok] == []
    for chat in chats:
        entries = await read_all(alice, chat)
        assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
        left = {entry["user"]: entry["seq"] for entry in entries if entry["kind"] == "member"}
        sent = {entry["ref"]: entry for entry in entries if entry["kind"] == "text"}
        assert set(left) == set(names)
        assert all(entry["seq"] < left[entry["sender"]] for entry in sent.values())
        for name in names:
            for ref, seq in races[chat, name].acked.items():
                assert sent[ref]["seq"] == seq


async def read_all(device: RawChat, chat: str) -> list[dict[str, Any]]:
    """Return a chat's whole history."""
    entries: list[dict[str, Any]] = []
    while True:
        after = entries[-1]["seq"] if entries else 0
        page = await device.request("history", chat=chat, after=after, limit=200)
        entries += page["messages"]
        if not page["more"]:
            return entries
