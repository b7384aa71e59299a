"""`/v1/me/messages`: messages that a user sent and received, over all chats and tiers."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from chatserver.client import ChatClient
from chatserver.dev.servers import Server
from tests.integration.api.support import Caller, bodies, make_group, problem_of, send, store
from tests.security.support.users import make_key
from tests.support.rawchat import RawChat
from tests.support.servers.processes import eventually_equal
from tests.support.stack import NewName, Stack

Fields = dict[str, Any]
ALL = "/v1/me/messages"


async def show_all(owner: httpx.AsyncClient, chat: str) -> None:
    """Allow members of a group to read its full history."""
    answer = await owner.patch(f"/v1/chats/{chat}", json={"history": "all"})
    assert answer.status_code == 200, answer.text


async def test_cursor_stays_valid_while_messages_arrive(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Newer messages do not change the pages; a cursor of another list is refused."""
    mine, theirs = caller(alice.user), caller(bob.user)
    group = await make_group(mine, bob.user)
    for number in range(4):
        await store(theirs, (pair, group)[number % 2], f"m{number}")
    first = (await mine.get(ALL, params={"limit": 2})).json()
    for chat in (pair, group):
        await store(theirs, chat, "later")

    query = {"limit": 2, "cursor": first["next"]}
    second = (await mine.get(ALL, params=query)).json()
    foreign = await theirs.get(ALL, params=query)
    other = await mine.get(ALL, params={**query, "direction": "sent"})

    assert [each["body"] for each in first["items"]] == ["m3", "m2"]
    assert [each["body"] for each in second["items"]] == ["m1", "m0"]
    assert second["next"] is None
    assert problem_of(foreign) == problem_of(other) == (400, "bad_request")


async def test_messages_from_before_joining_are_not_received(
    caller: Caller, alice: RawChat, bob: RawChat, pair: str, new_name: NewName, stack: Stack
) -> None:
    """This holds even if the history is visible. Messages of an earlier membership return."""
    mine, theirs = caller(alice.user), caller(bob.user)
    await stack.add_users([eve := new_name("eve")])
    group = await make_group(theirs, eve)
    await show_all(theirs, group)
    await store(theirs, group, "before")

    async def join() -> None:
        answer = await theirs.post(f"/v1/chats/{group}/members", json={"users": [alice.user]})
        assert answer.status_code == 201

    await join()
    await store(theirs, group, "first membership")
    assert (await mine.post(f"/v1/chats/{group}/leave", json={})).status_code == 200
    left = await bodies(mine)
    await store(theirs, group, "absent")
    await join()
    await store(theirs, group, "second membership")

    # `joined` in the directory is a lower bound until Redis has assigned the seq.
    await eventually_equal(lambda: bodies(mine), ["second membership", "first membership"])
    assert left == []


async def test_api_key_lists_messages_of_any_user(
    caller: Caller, stack: Stack, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """It includes messages that the user deleted for themselves; users are refused."""
    mine, theirs = caller(alice.user), caller(bob.user)
    seqs = [(await store(theirs, pair, f"m{n}"))["seq"] for n in range(2)]
    await mine.delete(f"/v1/chats/{pair}/messages/{seqs[0]}", params={"for": "me"})
    path = f"/v1/admin/users/{alice.user}/messages"
    host = caller("")
    host.headers["Authorization"] = f"Bearer {await make_key(stack, 'chats:read')}"

    refused = await mine.get(path)
    listed = await bodies(host, path)

    assert problem_of(refused)[0] == 403
    assert listed == ["m1", "m0"]
    assert await bodies(mine) == ["m1"]


async def test_sdk_lists_all_messages(
    stack: Stack, api: Server, caller: Caller, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """The SDK reads pages, by direction and in a time range."""
    mine, theirs = caller(alice.user), caller(bob.user)
    group = await make_group(theirs, alice.user)
    sends = [(mine, pair), (theirs, group), (theirs, pair)]
    ts = [(await store(who, chat, f"m{n}"))["ts"] for n, (who, chat) in enumerate(sends)]
    url = f"ws://127.0.0.1:{stack.port}/"

    async with ChatClient(url, stack.token(alice.user), api_url=api.endpoint) as client:
        first = await client.all_messages(limit=2)
        rest = await client.all_messages(limit=2, cursor=first.next)
        received = await client.all_messages(direction="received", newest_first=False)
        between = await client.all_messages(from_ts=ts[1], to_ts=ts[1])

    pages = (first, rest, received, between)
    assert [[each.body for each in page.messages] for page in pages] == [
        ["m2", "m1"],
        ["m0"],
        ["m1", "m2"],
        ["m1"],
    ]
    assert rest.next is None


@dataclasses.dataclass
class Sent:
    """A message in the model."""

    chat: str
    seq: int
    ts: int
    sender: str
    body: str
    is_for_alice: bool  # alice was a member when it was sent
    is_removed: bool = False


@dataclasses.dataclass
class Model:
    """The expected content of alice's list, and requests that change it."""

    random: random.Random
    clients: dict[str, httpx.AsyncClient]  # by user; the first one is alice
    members: dict[str, set[str]]  # by chat
    groups: Sequence[str]
    messages: list[Sent] = dataclasses.field(default_factory=list)

    @property
    def alice(self) -> str:
        return next(iter(self.clients))

    async def step(self) -> None:
        changes = [self.send] * 8 + [self.edit, self.delete, self.hide, self.join_or_leave]
        await self.random.choice(changes)()

    async def send(self) -> None:
        chat = self.random.choice(list(self.members))
        sender = self.random.choice(sorted(self.members[chat]))
        body = f"m{len(self.messages)}"
        durability = self.random.choice(["hot", "hot", "stored"])
        answer = await send(self.clients[sender], chat, body, durability=durability)
        assert answer.status_code == 201, answer.text
        ack = answer.json()
        is_for_alice = self.alice in self.members[chat]
        self.messages.append(Sent(chat, ack["seq"], ack["ts"], sender, body, is_for_alice))

    def pick(self, *, is_readable: bool = False) -> Sent | None:
        found = [
            each
            for each in self.messages
            if not each.is_removed
            and (each.sender in self.members[each.chat])
            and (not is_readable or (each.is_for_alice and self.alice in self.members[each.chat]))
        ]
        return self.random.choice(found) if found else None

    async def edit(self) -> None:
        if (message := self.pick()) is not None:
            message.body += "'"
            path = f"/v1/chats/{message.chat}/messages/{message.seq}"
            answer = await self.clients[message.sender].patch(path, json={"body": message.body})
            assert answer.status_code == 200, answer.text

    async def delete(self) -> None:
        if (message := self.pick()) is not None:
            message.is_removed = True
            path = f"/v1/chats/{message.chat}/messages/{message.seq}"
            answer = await self.clients[message.sender].delete(path)
            assert answer.status_code in (200, 204), answer.text

    async def hide(self) -> None:
        if (message := self.pick(is_readable=True)) is not None:
            message.is_removed = True
            path = f"/v1/chats/{message.chat}/messages/{message.seq}"
            answer = await self.clients[self.alice].delete(path, params={"for": "me"})
            assert answer.status_code in (200, 204), answer.text

    async def join_or_leave(self) -> None:
        group = self.random.choice(self.groups)
        owner = next(each for each in self.clients if each != self.alice)
        if self.alice in self.members[group]:
            answer = await self.clients[self.alice].post(f"/v1/chats/{group}/leave", json={})
            self.members[group].discard(self.alice)
        else:
            users = {"users": [self.alice]}
            answer = await self.clients[owner].post(f"/v1/chats/{group}/members", json=users)
            self.members[group].add(self.alice)
        assert answer.status_code in (200, 201), answer.text

    def listed(self, direction: str | None, low: int, high: int) -> list[str]:
        """Return the expected bodies of alice's list, oldest first."""
        found = [
            each
            for each in self.messages
            if each.is_for_alice
            and not each.is_removed
            and self.alice in self.members[each.chat]
            and low <= each.ts <= high
            and (direction is None or (each.sender == self.alice) == (direction == "sent"))
        ]
        return [each.body for each in sorted(found, key=lambda each: (each.ts, each.chat))]


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_list_equals_the_model_after_random_changes(
    seed: int, caller: Caller, stack: Stack, new_name: NewName
) -> None:
    """Random sends, edits, deletions, joins and leaves; pages of random size in both directions."""
    users = [new_name(name) for name in ("alice", "bob", "eve")]
    await stack.add_users(users)
    clients = {user: caller(user) for user in users}
    alice, bob, eve = users
    members: dict[str, set[str]] = {}
    for other in (bob, eve):
        answer = await clients[alice].put(f"/v1/direct-chats/{other}")
        members[answer.json()["chat"]] = {alice, other}
    groups = [await make_group(clients[bob], alice, eve) for _ in range(3)]
    await show_all(clients[bob], groups[0])
    members |= {group: {alice, bob, eve} for group in groups}
    model = Model(random.Random(seed), clients, members, groups)

    for _ in range(4):
        for _ in range(15):
            await model.step()

        everything = model.listed(None, 0, 2**53)
        await eventually_equal(lambda: bodies(clients[alice], order="oldest"), everything)
        ts = sorted(each.ts for each in model.messages)
        for _ in range(6):
            low, high = sorted(model.random.choices([0, *ts, 2**53 - 1], k=2))
            direction = model.random.choice([None, "sent", "received"])
            is_newest_first = model.random.random() < 0.5
            query: Fields = {
                "from": low,
                "to": high,
                "order": "newest" if is_newest_first else "oldest",
            }
            query |= {} if direction is None else {"direction": direction}
            found = await bodies(clients[alice], sizes=lambda: model.random.randint(1, 9), **query)
            expected = model.listed(direction, low, high)
            assert found == (expected[::-1] if is_newest_first else expected), query
