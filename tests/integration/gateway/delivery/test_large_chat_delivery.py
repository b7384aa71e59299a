"""Large chats: delivery without inboxes, resume by the chat's seq, and transitions.

In these tests a chat is large above five members, and small again below four.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import httpx
import pytest
import redis.asyncio

from chatserver.client import ChatClient
from chatserver.dev.servers import Server
from tests.support.rawchat import Failed, RawChat
from tests.support.servers.processes import eventually
from tests.support.servers.tcp_proxy import TcpProxy
from tests.support.stack import PATIENT, NewName, Stack, open_stack

DEADLINE_S = 60.0
_refs = itertools.count(1)


@pytest.fixture(scope="module")
def large_chat_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack of two gateways in which a chat of six members is large."""
    env = {
        **PATIENT,
        "CHAT_CHATS_FANOUT_MEMBERS_MAX": "5",
        # A gateway compares heads after each third of this time. If it stalls longer, signals are
        # lost.
        "CHAT_GATEWAY_ONLINE_TTL_S": "9",
        # A device can resume, however many messages are sent while it is disconnected.
        "CHAT_REDIS_LOG_MAX": "1000000",
        "CHAT_REDIS_INBOX_MAX": "1000000",
    }
    with open_stack(
        tmp_path_factory.mktemp("large-chats"), gateways=2, fsync="no", env=env
    ) as made:
        yield made


@pytest.fixture
async def devices(large_chat_stack: Stack, new_name: NewName) -> AsyncIterator[list[RawChat]]:
    """Six users with one device each, alternating between the gateways."""
    names = [new_name(stem) for stem in ("alice", "bob", "carol", "dave", "erin", "frank")]
    devices = [
        large_chat_stack.chat_of(name, port=large_chat_stack.ports()[number % 2])
        for number, name in enumerate(names)
    ]
    async with contextlib.AsyncExitStack() as exits:
        for device in devices:
            await exits.enter_async_context(device)
        yield devices


async def create_group(owner: RawChat, others: Sequence[RawChat]) -> str:
    """Create a group; return its id."""
    members = [other.user for other in others]
    answer = await owner.request(
        "create_chat", ref=f"g{next(_refs)}", members=members, deadline_s=DEADLINE_S
    )
    chat: str = answer["chat"]["chat"]
    return chat


async def send_message(
    device: RawChat, chat: str, body: str, ref: str | None = None, **extra: Any
) -> Any:
    """Send a message; return its ack. The deadline allows for a slow machine."""
    pending = await device.send_nowait(chat, body, ref, **extra)
    assert pending.attempt is not None
    async with asyncio.timeout(DEADLINE_S):
        try:
            return await pending.attempt
        finally:
            device.pending.pop(pending.ref, None)


async def change_membership(owner: RawChat, type_: str, chat: str, **fields: Any) -> dict[str, Any]:
    """Change the membership of a chat; return the chat's info after the change."""
    answer = await owner.request(
        type_, chat=chat, ref=f"c{next(_refs)}", deadline_s=DEADLINE_S, **fields
    )
    info: dict[str, Any] = answer["chat"]
    return info


def get_entries(device: RawChat, chat: str) -> list[tuple[int, str]]:
    """Return the entries of a chat that a device received, as (seq, body)."""
    entries = (event.get("message") for event in device.of_type("event", chat=chat))
    return [
        (entry["seq"], entry["body"] or f"{entry.get('user')}:{entry.get('role', '')}")
        for entry in entries
        if entry
    ]


def get_seqs(device: RawChat, chat: str) -> list[int]:
    """Return the seqs of the entries of a chat that a device received."""
    return [seq for seq, _ in get_entries(device, chat)]


async def expect_entry(device: RawChat, chat: str, seq: int) -> None:
    """Wait until a device has received the entry with a seq."""
    await device.expect(lambda me: seq in get_seqs(me, chat), DEADLINE_S, f"entry {seq}")


async def test_large_chat_created_over_http_is_in_user_state_before_the_response(
    large_chat_stack: Stack, devices: list[RawChat]
) -> None:
    """Each member can read the chat at once, before repair runs."""
    api = large_chat_stack.start_api()
    headers = {"Authorization": f"Bearer {large_chat_stack.token(devices[0].user)}"}
    async with httpx.AsyncClient(base_url=api.endpoint, headers=headers, timeout=30) as client:
        members = [device.user for device in devices[1:]]
        answer = await client.post("/v1/chats", json={"members": members})
    assert answer.status_code == 201, answer.text
    chat = answer.json()["chat"]

    async with redis.asyncio.Redis.from_url(large_chat_stack.redis_url, socket_timeout=60) as hot:
        is_registered = [
            await hot.hexists(f"{{p0}}:large:{device.user}", chat) for device in devices
        ]
    assert answer.json()["large"] is True
    assert all(is_registered)
    await send_message(devices[1], chat, "hello")
    for device in devices:
        await expect_entry(device, chat, 1)


async def test_large_chat_is_delivered_on_all_gateways_and_resumes_by_its_seq(
    devices: list[RawChat],
) -> None:
    """Each member gets each entry once and in order, also a device that reconnects."""
    alice, bob, carol, *_ = devices
    chat = await create_group(alice, devices[1:])
    for device in devices:
        (event,) = await device.expect(
            lambda me: me.of_type("event", kind="chat", chat=chat), DEADLINE_S
        )
        info = event["info"]
        assert (info["large"], info["since"], info["count"]) == (True, 0, 6)

    for number in range(1, 4):
        await send_message(alice, chat, f"text {number}")
        await send_message(bob, chat, f"reply {number}")

    wanted = [f"{stem} {number}" for number in range(1, 4) for stem in ("text", "reply")]
    for device in devices:
        await expect_entry(device, chat, 6)
        assert get_entries(device, chat) == list(enumerate(wanted, 1))
        assert {event["seq"] for event in device.of_type("event", kind="message")} == {0}

    await carol.abort()
    assert (await send_message(alice, chat, "while disconnected"))["seq"] == 7
    await carol.start(port=bob.port)
    assert (carol.welcome or {})["large"] == [{"chat": chat, "seq": 6}]
    await expect_entry(carol, chat, 7)
    await send_message(alice, chat, "live")
    await expect_entry(carol, chat, 8)
    assert get_entries(carol, chat)[6:] == [(7, "while disconnected"), (8, "live")]

    line = (await carol.read_list())[chat]
    assert (line["top"], line["unread"]) == (8, 8)
    await carol.request("mark", chat=chat, read=8)
    assert "unread" not in (await carol.read_list())[chat]
    await alice.send_frame("typing", chat=chat, on=True)
    await bob.expect_frame("signal", DEADLINE_S, kind="typing", chat=chat)
    assert not alice.of_type("signal", kind="typing")


async def test_resumed_device_of_a_large_chat_gets_the_current_state_of_messages(
    devices: list[RawChat],
) -> None:
    """It receives no deleted text, and every change once."""
    alice, bob, *_ = devices
    chat = await create_group(alice, devices[1:])
    first = (await send_message(alice, chat, "to delete"))["seq"]
    second = (await send_message(alice, chat, "to edit"))["seq"]
    await expect_entry(bob, chat, second)
    await bob.abort()
    await alice.request("delete", chat=chat, seq=first, ref="d1", scope="all")
    await alice.request("edit", chat=chat, seq=second, ref="e1", body="edited")
    short = await send_message(alice, chat, "short", expires_s=1)

    await bob.start(large={chat: 0})
    await expect_entry(bob, chat, short["seq"])

    events = bob.of_type("event", chat=chat)[-5:]
    shown = {event["cs"]: event["message"] for event in events}
    assert (shown[first]["body"], shown[first]["deleted"]) == ("", True)
    assert shown[second]["body"] == "edited"
    assert [event["kind"] for event in events] == [
        "message", "message", "delete", "edit", "message"
    ]  # fmt: skip


async def test_new_member_of_a_large_chat_gets_no_text_from_before_joining(
    devices: list[RawChat],
) -> None:
    """An edit of an earlier message is delivered without text, live and after a resume."""
    alice, bob, carol, dave, erin, frank = devices
    chat = await create_group(alice, [bob, carol, dave, erin])
    before = (await send_message(alice, chat, "before"))["seq"]
    await change_membership(alice, "invite", chat, users=[frank.user])
    joined = (await send_message(alice, chat, "after"))["seq"]
    for device in devices:
        await expect_entry(device, chat, joined)

    await alice.request("edit", chat=chat, seq=before, ref="e1", body="the whole text")
    live = (await send_message(alice, chat, "live"))["seq"]
    for device in (bob, frank):
        await expect_entry(device, chat, live)
    await frank.abort()
    await alice.request("edit", chat=chat, seq=before, ref="e2", body="again, the whole text")
    last = (await send_message(alice, chat, "last"))["seq"]
    await frank.start(large={chat: live})
    await expect_entry(frank, chat, last)

    def edits(device: RawChat) -> list[str]:
        return [e["message"]["body"] for e in device.of_type("event", kind="edit", chat=chat)]

    assert edits(frank) == ["", ""]
    assert get_seqs(frank, chat) == list(range(2, last + 1))
    await bob.expect(lambda me: len(edits(me)) == 2)
    assert edits(bob)[0] == "the whole text"


async def test_removed_member_of_a_large_chat_gets_the_removal_as_last_entry(
    devices: list[RawChat],
) -> None:
    """The removal arrives live or on resume. A member invited again gets only later entries."""
    alice, bob, carol, *_ = devices
    chat = await create_group(alice, devices[1:])
    await send_message(alice, chat, "one")
    for device in devices:
        await expect_entry(device, chat, 1)
    await carol.abort()
    for number, removed in enumerate((bob, carol), 2):
        await change_membership(alice, "remove", chat, user=removed.user)
        await send_message(alice, chat, f"without {number}")
    await carol.start()
    last_seqs = {bob: 2, carol: 4}
    for removed, last in last_seqs.items():
        await expect_entry(removed, chat, last)
        with pytest.raises(Failed):
            await send_message(removed, chat, "after removal")

    await change_membership(alice, "invite", chat, users=[bob.user])
    end = (await send_message(alice, chat, "welcome back"))["seq"]
    await expect_entry(bob, chat, end)

    assert get_seqs(bob, chat) == [1, 2, 6, 7]
    assert get_seqs(carol, chat) == [1, 2, 3, 4]
    assert get_seqs(devices[3], chat) == [1, 2, 3, 4, 5, 6, 7]


class SendLoop:
    """Sends messages one by one until the test stops it."""

    def __init__(self, device: RawChat, chat: str) -> None:
        self.count = 0
        self._device = device
        self._chat = chat
        self._is_stopped = False

    async def run(self) -> None:
        """Send until stopped."""
        while not self._is_stopped:
            self.count += 1
            await send_message(self._device, self._chat, f"{self._device.user} {self.count}")

    def stop(self) -> None:
        """Stop after the current message."""
        self._is_stopped = True

    async def wait_for_sends(self, messages: int) -> None:
        """Wait until `messages` more messages have been sent."""
        wanted = self.count + messages
        await eventually(lambda: self.count >= wanted, DEADLINE_S, "more messages are sent")


async def test_transitions_under_load_lose_and_repeat_no_entry(
    large_chat_stack: Stack, devices: list[RawChat]
) -> None:
    """Each device gets each entry once and in order, across transitions and reconnects."""
    alice, bob, carol, *guests = devices
    chat = await create_group(alice, [bob, carol])
    second = large_chat_stack.chat_of(carol.user, port=carol.port, device="second")
    async with second:
        loops = [SendLoop(device, chat) for device in (alice, bob)]
        tasks = [asyncio.create_task(loop.run()) for loop in loops]
        for number in range(2):
            infos = [
                await change_membership(alice, "invite", chat, users=[guest.user])
                for guest in guests
            ]
            assert [info.get("large", False) for info in infos] == [False, False, True]
            await loops[0].wait_for_sends(10)
            await second.abort()
            await loops[1].wait_for_sends(10)
            if number == 1:
                await second.start(port=bob.port)
                await loops[1].wait_for_sends(5)
            for guest in guests:
                await change_membership(alice, "remove", chat, user=guest.user)
            if number != 1:
                await second.start(port=large_chat_stack.ports()[number % 2])
            await loops[0].wait_for_sends(10)
        for loop in loops:
            loop.stop()
        await asyncio.gather(*tasks)
        end = (await send_message(alice, chat, "the end"))["seq"]
        for device in (alice, bob, carol, second):
            await expect_entry(device, chat, end)

        for device in (alice, bob, carol, second):
            assert not device.of_type("too_long"), device.device
            assert get_seqs(device, chat) == list(range(1, end + 1)), device.device
    for guest in guests:
        memberships = split_by_membership(guest, chat)
        assert len(memberships) == 2
        for entries in memberships:
            assert [seq for seq, _ in entries] == list(range(entries[0][0], entries[-1][0] + 1))
            assert entries[-1][1] == f"{guest.user}:"
    has_no_inbox_seq = {
        event["seq"] == 0 for event in alice.of_type("event", kind="message", chat=chat)
    }
    assert has_no_inbox_seq == {True, False}


async def test_device_without_large_chat_seqs_gets_too_long_for_a_former_large_chat(
    devices: list[RawChat],
) -> None:
    """The server cannot know which entries the device has, so it reports a gap (guarantee P5)."""
    alice, bob, carol, *guests = devices
    chat = await create_group(alice, devices[1:])
    await send_message(alice, chat, "one")
    await expect_entry(carol, chat, 1)
    await carol.abort()
    await send_message(bob, chat, "two")
    for guest in guests:
        await change_membership(alice, "remove", chat, user=guest.user)
    end = (await send_message(alice, chat, "small again"))["seq"]

    await carol.start(large={})
    await expect_entry(carol, chat, end)

    too_long = await carol.expect_frame("too_long", DEADLINE_S)
    assert [line["chat"] for line in too_long["chats"]] == [chat]
    assert too_long["chats"][0]["top"] == end
    page = await carol.request("history", chat=chat, after=1)
    assert page["messages"][0]["body"] == "two"


def split_by_membership(guest: RawChat, chat: str) -> list[list[tuple[int, str]]]:
    """Return the entries that a user received, one list for each membership."""
    memberships: list[list[tuple[int, str]]] = []
    for entry in get_entries(guest, chat):
        if entry[1] == f"{guest.user}:member":
            memberships.append([])
        memberships[-1].append(entry)
    return memberships


async def test_large_chat_is_delivered_after_redis_lost_its_data(
    large_chat_stack: Stack, devices: list[RawChat]
) -> None:
    """Devices restart from a snapshot and get all later entries once and in order."""
    alice, bob, *_ = devices
    chat = await create_group(alice, devices[1:])
    for number in range(1, 6):
        ack = await send_message(alice, chat, f"text {number}")
    await alice.expect(lambda me: not me.unstored, DEADLINE_S, "all stored")
    client = redis.asyncio.Redis.from_url(large_chat_stack.redis_url, socket_timeout=60)
    await client.flushall()
    await client.aclose()
    for device in devices:
        await device.expect(lambda me: me.of_type("reset"), DEADLINE_S, "a reset")

    # Devices restart one after another; each snapshot has the seq up to which the device must read.
    sent: set[int] = set()
    numbers = itertools.count(1)
    while not all(sent.intersection(get_seqs(device, chat)) for device in devices):
        sent.add(await send_until_accepted(alice, chat, f"again {next(numbers)}"))
        await asyncio.sleep(0.1)
    last = await send_until_accepted(alice, chat, "the end")

    for device in devices:
        await expect_entry(device, chat, last)
        live = [seq for seq in get_seqs(device, chat) if seq > ack["seq"]]
        snapshots = device.of_type("reset") + device.of_type("too_long")
        lines = [line for frame in snapshots for line in frame["chats"] if line["chat"] == chat]
        assert chat in {each["chat"] for frame in snapshots for each in frame.get("large", [])}
        read_upto = max([ack["seq"], *(line["top"] for line in lines)])
        assert live == list(range(live[0], last + 1))
        assert live[0] <= read_upto + 1
    page = await bob.request("history", chat=chat)
    assert [message["seq"] for message in page["messages"]] == list(range(1, last + 1))


async def send_until_accepted(device: RawChat, chat: str, body: str) -> int:
    """Send a message until it is accepted; return its seq."""
    ref = f"r{next(_refs)}"
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with contextlib.suppress(Failed):
                seq: int = (await send_message(device, chat, body, ref))["seq"]
                return seq
            await asyncio.sleep(0.05)


async def test_transition_interrupted_by_a_worker_crash_is_completed_by_repair(
    large_chat_stack: Stack, devices: list[RawChat]
) -> None:
    """The worker crashes before it notifies the members; repair completes the propagation."""
    alice, bob, carol, *guests = devices
    chat = await create_group(alice, [bob, carol, *guests[:2]])
    await send_message(alice, chat, "small")
    worker: Server = large_chat_stack.workers["persist-repair-rpc"]
    worker.kill()
    env = {"CHAT_FAILPOINT": "membership.after_redis:kill"}
    broken = await large_chat_stack.start_worker_async("rpc", **env)
    with pytest.raises(Failed):
        await change_membership(alice, "invite", chat, users=[guests[2].user])
    assert broken.process is not None
    sent = [(await send_message(alice, chat, f"text {number}"))["seq"] for number in range(3)]
    await large_chat_stack.start_worker_async("persist", "repair", "rpc")

    for device in (alice, bob, carol):
        await expect_entry(device, chat, sent[-1])
        assert get_seqs(device, chat) == list(range(1, sent[-1] + 1))
    await expect_entry(guests[2], chat, sent[-1])
    assert get_seqs(guests[2], chat) == list(range(2, sent[-1] + 1))


@pytest.mark.parametrize("offline", ["never", "invite", "remove"])
async def test_sdk_client_follows_large_chat_transitions(
    offline: str, large_chat_stack: Stack, devices: list[RawChat]
) -> None:
    """The SDK client gets each message once, even if it is offline while the chat changes."""
    alice, bob, carol, *guests = devices
    chat = await create_group(alice, [bob, carol])

    async def get_token() -> str:
        return large_chat_stack.token(bob.user)

    proxy = TcpProxy(bob.port)
    async with proxy:
        url = f"ws://127.0.0.1:{proxy.port}/"
        async with ChatClient(url, get_token, device="sdk", open_s=DEADLINE_S) as client:
            await client.history(chat)
            wanted = []
            for change in ("invite", "remove", "invite"):
                if change == offline:
                    proxy.refuse()
                if change == "invite":
                    users = [guest.user for guest in guests]
                    await change_membership(alice, "invite", chat, users=users)
                else:
                    for guest in guests:
                        await change_membership(alice, "remove", chat, user=guest.user)
                for number in range(3):
                    wanted.append(f"{change} {number}")
                    await send_message(alice, chat, wanted[-1])
                proxy.end_faults()

            def bodies() -> list[str]:
                return [entry.body for entry in client.messages(chat)]

            await eventually(lambda: len(bodies()) >= len(wanted), DEADLINE_S, "all messages")
            assert bodies() == wanted
