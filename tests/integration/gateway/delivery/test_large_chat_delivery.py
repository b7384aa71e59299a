"""Large chats on real servers: no inboxes, the same entries for all, resume by the chat's seq.

More than five members make a chat a large one here, and fewer than four a small one again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import httpx
import pytest
import redis.asyncio

from chatserver.client import ChatClient
from chatserver.dev.servers import Server
from tests.support.rawchat import Failed, RawChat
from tests.support.servers.processes import eventually
from tests.support.stack import PATIENT, Stack, open_stack

pytest_plugins = ["tests.support.stack_fixtures"]

NewName = Callable[[str], str]
DEADLINE_S = 60.0
_refs = itertools.count(1)


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack of two gateways in which six are a crowd."""
    env = {
        **PATIENT,
        "CHAT_CHATS_FANOUT_MEMBERS_MAX": "5",
        # Each third of it they look for what was not told; held up for longer, they miss signals.
        "CHAT_GATEWAY_ONLINE_TTL_S": "9",
        # Whatever is sent while a device is away, it is not too much to resume.
        "CHAT_REDIS_LOG_MAX": "1000000",
        "CHAT_REDIS_INBOX_MAX": "1000000",
    }
    with open_stack(tmp_path_factory.mktemp("crowd"), gateways=2, fsync="no", env=env) as made:
        yield made


@pytest.fixture
async def people(crowd: Stack, new_name: NewName) -> AsyncIterator[list[RawChat]]:
    """Six users with one device each, alternating between the gateways."""
    names = [new_name(stem) for stem in ("alice", "bob", "carol", "dave", "erin", "frank")]
    devices = [
        crowd.chat_of(name, port=crowd.ports()[number % 2]) for number, name in enumerate(names)
    ]
    async with contextlib.AsyncExitStack() as exits:
        for device in devices:
            await exits.enter_async_context(device)
        yield devices


async def create(owner: RawChat, others: Sequence[RawChat]) -> str:
    """Make a group; return its id."""
    members = [other.user for other in others]
    answer = await owner.ask(
        "create_chat", ref=f"g{next(_refs)}", members=members, deadline_s=DEADLINE_S
    )
    chat: str = answer["chat"]["chat"]
    return chat


async def say(device: RawChat, chat: str, body: str, ref: str | None = None, **extra: Any) -> Any:
    """Send a message; return its ack. The machine may be slow."""
    pending = await device.post(chat, body, ref, **extra)
    assert pending.attempt is not None
    async with asyncio.timeout(DEADLINE_S):
        try:
            return await pending.attempt
        finally:
            device.pending.pop(pending.ref, None)


async def change(owner: RawChat, type_: str, chat: str, **fields: Any) -> dict[str, Any]:
    """Change who is in a chat; return what it is then."""
    answer = await owner.ask(
        type_, chat=chat, ref=f"c{next(_refs)}", deadline_s=DEADLINE_S, **fields
    )
    info: dict[str, Any] = answer["chat"]
    return info


def places(device: RawChat, chat: str) -> list[tuple[int, str]]:
    """Entries of a chat that a device received: their seqs and bodies."""
    entries = (event.get("message") for event in device.of_type("event", chat=chat))
    return [
        (entry["seq"], entry["body"] or f"{entry.get('user')}:{entry.get('role', '')}")
        for entry in entries
        if entry
    ]


def seqs(device: RawChat, chat: str) -> list[int]:
    """The places alone."""
    return [seq for seq, _ in places(device, chat)]


async def expect_upto(device: RawChat, chat: str, seq: int) -> None:
    """Wait until a device was sent an entry."""
    await device.expect(lambda me: seq in seqs(me, chat), DEADLINE_S, f"entry {seq}")


async def test_large_chat_made_by_http_is_told_before_the_answer(
    crowd: Stack, people: list[RawChat]
) -> None:
    """Each member knows at once where to read the chat; repair does not have to find it."""
    api = crowd.start_api()
    headers = {"Authorization": f"Bearer {crowd.token(people[0].user)}"}
    async with httpx.AsyncClient(base_url=api.endpoint, headers=headers, timeout=30) as client:
        members = [device.user for device in people[1:]]
        answer = await client.post("/v1/chats", json={"members": members})
    assert answer.status_code == 201, answer.text
    chat = answer.json()["chat"]

    async with redis.asyncio.Redis.from_url(crowd.redis_url, socket_timeout=60) as hot:
        told = [await hot.hexists(f"{{p0}}:large:{device.user}", chat) for device in people]
    assert answer.json()["large"] is True
    assert all(told)
    await say(people[1], chat, "in it")
    for device in people:
        await expect_upto(device, chat, 1)


async def test_large_chat_reaches_members_on_all_gateways_and_resumes_by_its_own_place(
    people: list[RawChat],
) -> None:
    """Each member gets each entry once, in order; a reconnected device gets what it missed."""
    alice, bob, carol, *_ = people
    chat = await create(alice, people[1:])
    for device in people:
        (told,) = await device.expect(
            lambda me: me.of_type("event", kind="chat", chat=chat), DEADLINE_S
        )
        assert (told["info"]["large"], told["info"]["since"], told["info"]["count"]) == (True, 0, 6)

    for number in range(1, 4):
        await say(alice, chat, f"text {number}")
        await say(bob, chat, f"far {number}")

    wanted = [f"{stem} {number}" for number in range(1, 4) for stem in ("text", "far")]
    for device in people:
        await expect_upto(device, chat, 6)
        assert places(device, chat) == list(enumerate(wanted, 1))
        assert {event["seq"] for event in device.of_type("event", kind="message")} == {0}

    await carol.abort()
    assert (await say(alice, chat, "while away"))["seq"] == 7
    await carol.start(port=bob.port)
    assert (carol.welcome or {})["large"] == [{"chat": chat, "seq": 6}]
    await expect_upto(carol, chat, 7)
    await say(alice, chat, "and live")
    await expect_upto(carol, chat, 8)
    assert places(carol, chat)[6:] == [(7, "while away"), (8, "and live")]

    line = (await carol.read_list())[chat]
    assert (line["top"], line["unread"]) == (8, 8)
    await carol.ask("mark", chat=chat, read=8)
    assert "unread" not in (await carol.read_list())[chat]
    await alice.tell("typing", chat=chat, on=True)
    await bob.expect_frame("signal", DEADLINE_S, kind="typing", chat=chat)
    assert not alice.of_type("signal", kind="typing")


async def test_changes_of_messages_reach_devices_of_a_large_chat_as_they_are(
    people: list[RawChat],
) -> None:
    """A late device reads no deleted text, and gets every change once."""
    alice, bob, *_ = people
    chat = await create(alice, people[1:])
    first = (await say(alice, chat, "gone soon"))["seq"]
    second = (await say(alice, chat, "mended soon"))["seq"]
    await expect_upto(bob, chat, second)
    await bob.abort()
    await alice.ask("delete", chat=chat, seq=first, ref="d1", scope="all")
    await alice.ask("edit", chat=chat, seq=second, ref="e1", body="mended")
    short = await say(alice, chat, "short", expires_s=1)

    await bob.start(large={chat: 0})
    await expect_upto(bob, chat, short["seq"])

    events = bob.of_type("event", chat=chat)[-5:]
    shown = {event["cs"]: event["message"] for event in events}
    assert (shown[first]["body"], shown[first]["deleted"]) == ("", True)
    assert shown[second]["body"] == "mended"
    assert [event["kind"] for event in events] == [
        "message", "message", "delete", "edit", "message"
    ]  # fmt: skip


async def test_late_joiner_of_a_large_chat_reads_no_text_from_before(
    people: list[RawChat],
) -> None:
    """An edit of a message from before reaches them without its text, live and when they resume."""
    alice, bob, carol, dave, erin, frank = people
    chat = await create(alice, [bob, carol, dave, erin])
    before = (await say(alice, chat, "before"))["seq"]
    await change(alice, "invite", chat, users=[frank.user])
    joined = (await say(alice, chat, "after"))["seq"]
    for device in people:
        await expect_upto(device, chat, joined)

    await alice.ask("edit", chat=chat, seq=before, ref="e1", body="the whole text")
    live = (await say(alice, chat, "live"))["seq"]
    for device in (bob, frank):
        await expect_upto(device, chat, live)
    await frank.abort()
    await alice.ask("edit", chat=chat, seq=before, ref="e2", body="again, the whole text")
    last = (await say(alice, chat, "last"))["seq"]
    await frank.start(large={chat: live})
    await expect_upto(frank, chat, last)

    def edits(device: RawChat) -> list[str]:
        return [e["message"]["body"] for e in device.of_type("event", kind="edit", chat=chat)]

    assert edits(frank) == ["", ""]
    assert seqs(frank, chat) == list(range(2, last + 1))
    await bob.expect(lambda me: len(edits(me)) == 2)
    assert edits(bob)[0] == "the whole text"


async def test_member_of_large_chat_who_is_removed_hears_that_last(people: list[RawChat]) -> None:
    """Live or after a reconnect; a member who is invited again gets later entries only."""
    alice, bob, carol, *_ = people
    chat = await create(alice, people[1:])
    await say(alice, chat, "one")
    for device in people:
        await expect_upto(device, chat, 1)
    await carol.abort()
    for number, gone in enumerate((bob, carol), 2):
        await change(alice, "remove", chat, user=gone.user)
        await say(alice, chat, f"without {number}")
    await carol.start()
    out = {bob: 2, carol: 4}
    for gone, last in out.items():
        await expect_upto(gone, chat, last)
        with pytest.raises(Failed):
            await say(gone, chat, "still here")

    await change(alice, "invite", chat, users=[bob.user])
    end = (await say(alice, chat, "welcome back"))["seq"]
    await expect_upto(bob, chat, end)

    assert seqs(bob, chat) == [1, 2, 6, 7]
    assert seqs(carol, chat) == [1, 2, 3, 4]
    assert seqs(people[3], chat) == [1, 2, 3, 4, 5, 6, 7]


class Speaker:
    """Sends one message after another until the test stops it."""

    def __init__(self, device: RawChat, chat: str) -> None:
        self.count = 0
        self._device = device
        self._chat = chat
        self._is_stopped = False

    async def run(self) -> None:
        """Speak."""
        while not self._is_stopped:
            self.count += 1
            await say(self._device, self._chat, f"{self._device.user} says {self.count}")

    def stop(self) -> None:
        """Come to an end."""
        self._is_stopped = True

    async def go_on(self, messages: int) -> None:
        """Wait until this many more messages were sent."""
        wanted = self.count + messages
        await eventually(lambda: self.count >= wanted, DEADLINE_S, "messages")


async def test_chat_that_turns_large_and_small_under_load_loses_and_repeats_nothing(
    crowd: Stack, people: list[RawChat]
) -> None:
    """Each entry comes once and in order to each device, however often it turns and reconnects."""
    alice, bob, carol, *guests = people
    chat = await create(alice, [bob, carol])
    second = crowd.chat_of(carol.user, port=carol.port, device="second")
    async with second:
        speakers = [Speaker(device, chat) for device in (alice, bob)]
        talks = [asyncio.create_task(speaker.run()) for speaker in speakers]
        for number in range(2):
            infos = [await change(alice, "invite", chat, users=[guest.user]) for guest in guests]
            assert [info.get("large", False) for info in infos] == [False, False, True]
            await speakers[0].go_on(10)
            await second.abort()
            await speakers[1].go_on(10)
            if number == 1:
                await second.start(port=bob.port)
                await speakers[1].go_on(5)
            for guest in guests:
                await change(alice, "remove", chat, user=guest.user)
            if number != 1:
                await second.start(port=crowd.ports()[number % 2])
            await speakers[0].go_on(10)
        for speaker in speakers:
            speaker.stop()
        await asyncio.gather(*talks)
        end = (await say(alice, chat, "the end"))["seq"]
        for device in (alice, bob, carol, second):
            await expect_upto(device, chat, end)

        for device in (alice, bob, carol, second):
            assert not device.of_type("too_long"), device.device
            assert seqs(device, chat) == list(range(1, end + 1)), device.device
    for guest in guests:
        stays = stays_of(guest, chat)
        assert len(stays) == 2
        for stay in stays:
            assert [seq for seq, _ in stay] == list(range(stay[0][0], stay[-1][0] + 1))
            assert stay[-1][1] == f"{guest.user}:"
    ways = {event["seq"] == 0 for event in alice.of_type("event", kind="message", chat=chat)}
    assert ways == {True, False}


async def test_device_that_names_no_place_hears_of_a_large_time_that_is_over(
    people: list[RawChat],
) -> None:
    """The server cannot know what the device lacks, so it reports a gap (promise P5)."""
    alice, bob, carol, *guests = people
    chat = await create(alice, people[1:])
    await say(alice, chat, "one")
    await expect_upto(carol, chat, 1)
    await carol.abort()
    await say(bob, chat, "two")
    for guest in guests:
        await change(alice, "remove", chat, user=guest.user)
    end = (await say(alice, chat, "small again"))["seq"]

    await carol.start(large={})
    await expect_upto(carol, chat, end)

    too_long = await carol.expect_frame("too_long", DEADLINE_S)
    assert [line["chat"] for line in too_long["chats"]] == [chat]
    assert too_long["chats"][0]["top"] == end
    page = await carol.ask("history", chat=chat, after=1)
    assert page["messages"][0]["body"] == "two"


def stays_of(guest: RawChat, chat: str) -> list[list[tuple[int, str]]]:
    """Entries that a guest received, by membership."""
    stays: list[list[tuple[int, str]]] = []
    for place in places(guest, chat):
        if place[1] == f"{guest.user}:member":
            stays.append([])
        stays[-1].append(place)
    return stays


async def test_large_chat_goes_on_after_redis_lost_everything(
    crowd: Stack, people: list[RawChat]
) -> None:
    """Devices start from a snapshot, and get all later entries once and in order."""
    alice, bob, *_ = people
    chat = await create(alice, people[1:])
    for number in range(1, 6):
        ack = await say(alice, chat, f"text {number}")
    await alice.expect(lambda me: not me.unstored, DEADLINE_S, "all stored")
    client = redis.asyncio.Redis.from_url(crowd.redis_url, socket_timeout=60)
    await client.flushall()
    await client.aclose()
    for device in people:
        await device.expect(lambda me: me.of_type("reset"), DEADLINE_S, "a reset")

    # Devices come back one by one; each is told up to where it has to read by itself.
    said: set[int] = set()
    numbers = itertools.count(1)
    while not all(said.intersection(seqs(device, chat)) for device in people):
        said.add(await say_at_last(alice, chat, f"again {next(numbers)}"))
        await asyncio.sleep(0.1)
    last = await say_at_last(alice, chat, "the end")

    for device in people:
        await expect_upto(device, chat, last)
        live = [seq for seq in seqs(device, chat) if seq > ack["seq"]]
        snapshots = device.of_type("reset") + device.of_type("too_long")
        lines = [line for frame in snapshots for line in frame["chats"] if line["chat"] == chat]
        assert chat in {each["chat"] for frame in snapshots for each in frame.get("large", [])}
        read_upto = max([ack["seq"], *(line["top"] for line in lines)])
        assert live == list(range(live[0], last + 1))
        assert live[0] <= read_upto + 1
    page = await bob.ask("history", chat=chat)
    assert [message["seq"] for message in page["messages"]] == list(range(1, last + 1))


async def say_at_last(device: RawChat, chat: str, body: str) -> int:
    """Send a message until it is taken; return its place."""
    ref = f"r{next(_refs)}"
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with contextlib.suppress(Failed):
                seq: int = (await say(device, chat, body, ref))["seq"]
                return seq
            await asyncio.sleep(0.05)


async def test_turn_whose_teller_died_is_told_by_repair(
    crowd: Stack, people: list[RawChat]
) -> None:
    """Between the change and the members' inboxes: it is found in the turnover of the chat."""
    alice, bob, carol, *guests = people
    chat = await create(alice, [bob, carol, *guests[:2]])
    await say(alice, chat, "small")
    worker: Server = crowd.workers["persist-repair-rpc"]
    worker.kill()
    env = {"CHAT_FAILPOINT": "membership.after_redis:kill"}
    broken = await crowd.bring_up_worker("rpc", **env)
    with pytest.raises(Failed):
        await change(alice, "invite", chat, users=[guests[2].user])
    assert broken.process is not None
    sent = [(await say(alice, chat, f"text {number}"))["seq"] for number in range(3)]
    await crowd.bring_up_worker("persist", "repair", "rpc")

    for device in (alice, bob, carol):
        await expect_upto(device, chat, sent[-1])
        assert seqs(device, chat) == list(range(1, sent[-1] + 1))
    await expect_upto(guests[2], chat, sent[-1])
    assert seqs(guests[2], chat) == list(range(2, sent[-1] + 1))


async def test_client_follows_a_chat_that_turns(crowd: Stack, people: list[RawChat]) -> None:
    """The SDK switches to the large chat and back, also while it is disconnected."""
    alice, bob, carol, *guests = people
    chat = await create(alice, [bob, carol])

    async def get_token() -> str:
        return crowd.token(bob.user)

    client = ChatClient(f"ws://127.0.0.1:{bob.port}/", get_token, device="sdk", open_s=DEADLINE_S)
    async with client:
        await client.history(chat)
        wanted = []
        for turn in ("invite", "remove", "invite"):
            if turn == "invite":
                await change(alice, "invite", chat, users=[guest.user for guest in guests])
            else:
                for guest in guests:
                    await change(alice, "remove", chat, user=guest.user)
            for number in range(3):
                wanted.append(f"{turn} {number}")
                await say(alice, chat, wanted[-1])

        def bodies() -> list[str]:
            return [entry.body for entry in client.messages(chat)]

        await eventually(lambda: len(bodies()) >= len(wanted), DEADLINE_S, "all messages")
        assert bodies() == wanted
