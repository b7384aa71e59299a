"""A simulation: twenty users with two devices each, three gateways, and their history.

`Actions` performs a script in a `Simulation`, one action after the other, without waiting for its
effects. A round ends with `finish_and_check`, which waits until the system is idle, reads
everything and runs the checker. Each round has new chats, but the same users, devices and
processes.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec
import redis.asyncio

from tests.chaos.devices import SdkDevice
from tests.chaos.raw_devices import RawDevice
from tests.chaos.world import Person
from tests.support.history.checker import check, check_inboxes, find_undelivered
from tests.support.history.events import (
    Event,
    Final,
    History,
    LogEntry,
    MembershipPeriods,
    Requested,
    Responded,
    Stored,
    dump_history,
)
from tests.support.history.violation import Violation, report
from tests.support.recorder import Recorder, entry_of_item
from tests.support.servers.processes import eventually
from tests.support.servers.tcp_proxy import TcpProxy
from tests.support.stack import Fleet, Stack

USERS = 20
GROUPS = (range(14), range(6, 14), range(10, 15))  # the first user of each group owns it
PAIRS = 4
RAW_EVERY = 5  # the second device of every fifth user uses the protocol directly
WEAK_EVERY = 4  # the first device of every fourth user is behind a breakable link
SETTLE_S = 120.0  # changes of one chat are serialized, which is slow on a busy machine


def pairs_of(number: int) -> list[tuple[int, int]]:
    """Return the pairs of users for the direct chats of a round.

    Two users always have the same chat.
    """
    step = USERS // PAIRS
    distance = number + (number - 1) // (step - 1)  # the shift is never a multiple of the step
    return [(a, (a + distance) % USERS) for a in range(0, USERS, step)]


class Action(msgspec.Struct, frozen=True, array_like=True):
    """A step of a script.

    It can be replayed, because it refers to users and objects by small numbers.
    """

    name: str
    args: tuple[int, ...] = ()


class Simulation:
    """The users of a run. Use as an async context manager."""

    user_count = USERS
    groups: Sequence[range] = GROUPS

    def __init__(self, stack: Stack, fleet: Fleet, folder: Path, seed: int) -> None:
        self.stack = stack
        self.fleet = fleet
        self.seed = seed
        self.history = History()
        self.script: list[Action] = []
        self.is_resting = True  # `World` users send nothing automatically here
        self._done = 0  # successful operations in all rounds
        self._slowest: dict[str, float] = {}  # longest waits at the end of rounds, in seconds
        self.chats: list[str] = []
        self._former: set[str] = set()  # the chats of earlier rounds
        self._folder = folder
        self._start = time.monotonic()
        self.round = 0
        self.refs = itertools.count(1)
        self._stem = f"{time.time_ns():x}"
        self.users = [f"u{number}-{self._stem}" for number in range(self.user_count)]
        self.devices: list[list[SdkDevice | RawDevice]] = []
        self.client_link = TcpProxy(fleet.port)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []

    def now(self) -> float:
        """Return the seconds since the simulation was created."""
        return time.monotonic() - self._start

    def record(self, event: Event) -> None:
        """Record an event; drop late marks of chats of earlier rounds."""
        if getattr(event, "chat", "") not in self._former:
            self.history.events.append(event)

    def ports(self) -> list[int]:
        """Return the gateway ports for `World` users."""
        return [self.fleet.port]

    # lifecycle

    async def __aenter__(self) -> Simulation:
        await self.stack.add_users(self.users)
        await self.client_link.__aenter__()
        for number, user in enumerate(self.users):
            first = self._new_sdk(user, 0, self.client_link if number % WEAK_EVERY == 0 else None)
            is_raw = number % RAW_EVERY == RAW_EVERY - 1
            second = self._new_raw(user, number) if is_raw else self._new_sdk(user, 1, None)
            self.devices.append([first, second])
            self.history.devices[user] = [first.name, second.name]
        await asyncio.gather(*(device.open() for device in self.sdk()))
        await eventually(self._are_all_online, SETTLE_S, "all devices are online")
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in (*self._tasks, *self._loops):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._loops, return_exceptions=True)
        await asyncio.gather(*(device.close() for device in self.sdk()))
        await asyncio.gather(*(device.chat.abort() for device in self._raw()))
        await self.client_link.__aexit__()

    def _new_sdk(self, user: str, number: int, link: TcpProxy | None) -> SdkDevice:
        port = self.fleet.port if link is None else link.port
        url = f"ws://127.0.0.1:{port}/"
        token = functools.partial(self.stack.token, user)
        return SdkDevice(self, user, f"{user}-{number}", url, token)

    def _new_raw(self, user: str, number: int) -> RawDevice:
        chat = self.stack.chat_of(
            user, port=self.fleet.port, device=f"{user}-raw", recorder=Recorder()
        )
        person = Person(self, chat, number)  # type: ignore[arg-type]  # has the attributes that it uses
        self._loops.append(asyncio.create_task(person.live(), name=f"connection of {chat.device}"))
        self._loops.append(asyncio.create_task(person.retry(), name=f"retries of {chat.device}"))
        return RawDevice(self, chat)

    def _all(self) -> list[SdkDevice | RawDevice]:
        return [device for devices in self.devices for device in devices]

    def sdk(self) -> list[SdkDevice]:
        """Return the SDK devices."""
        return [device for device in self._all() if isinstance(device, SdkDevice)]

    def _raw(self) -> list[RawDevice]:
        return [device for device in self._all() if isinstance(device, RawDevice)]

    def first(self, user: int) -> SdkDevice:
        """Return a user's first device, always an SDK device."""
        device = self.devices[user][0]
        assert isinstance(device, SdkDevice)
        return device

    def _are_all_online(self) -> bool:
        return all(device.is_online for device in self._all())

    def statistics(self) -> str:
        """Return the statistics of the run, for the test's output."""
        transitions = sum(device.count_transitions() for device in self._raw())
        slow = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in self._slowest.items())
        done = f"{self.round} rounds, {self._done} acked, {transitions} large-chat transitions"
        return f"{done}, longest until {slow}"

    # round

    async def begin(self) -> None:
        """Open the chats of a round."""
        self.round += 1
        self._former.update(self.history.chats)
        self.history = History(devices=self.history.devices)
        opening = [self._open_group(users) for users in self.groups]
        opening += [self._open_direct(a, b) for a, b in self.list_pairs()]
        self.chats = list(await asyncio.gather(*opening))
        self.script.append(Action("begin"))

    def list_pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of users for the direct chats of this round."""
        return pairs_of(self.round)

    def _names_of(self, users: range) -> list[str]:
        return [self.users[number] for number in users]

    async def _open_group(self, users: range) -> str:
        ref = f"g{self.round}-{users[0]}-{self._stem}"
        return await self._create(users[0], self._names_of(users), ref)

    async def _create(self, owner: int, names: list[str], ref: str) -> str:
        """Create a group that every user may join; the first name is its owner."""
        found: list[str] = []

        async def create(client: Any) -> None:
            found.append((await client.create_chat(names[1:], ref=ref)).id)

        device = self.first(owner)
        assert not await device.retry(create)
        self.history.chats[found[-1]] = names
        await self.change(owner, found[-1], "update", "open")
        return found[-1]

    async def _open_direct(self, a: int, b: int) -> str:
        return await self._open_direct_with(a, self.users[b])

    async def _open_direct_with(self, a: int, other: str) -> str:
        found: list[str] = []

        async def open_it(client: Any) -> None:
            found.append((await client.open_direct(other)).id)

        assert not await self.first(a).retry(open_it)
        self.history.chats[found[-1]] = [self.users[a], other]
        return found[-1]

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:
            self._tasks.discard(task)  # a failed task stays in the list until the end of the round

    async def change(
        self, user: int, chat: str, kind: Any, body: str = "", subject: int | None = None
    ) -> None:
        ref = f"{kind}-{next(self.refs)}"
        name, who = self.users[user], "" if subject is None else self.users[subject]
        asked = Requested(self.now(), name, chat, ref, kind, body, subject=who)
        history = self.history
        history.events.append(asked)

        async def ask(client: Any) -> None:
            match kind:
                case "invite":
                    await client.invite(chat, [who], ref=ref)
                case "remove":
                    await client.remove(chat, who, ref=ref)
                case "join":
                    await client.join(chat, ref=ref)
                case "leave":
                    await client.leave(chat, ref=ref)
                case _ if body == "open":
                    await client.update_chat(chat, joining="open", ref=ref)
                case _:
                    await client.update_chat(chat, name=body, ref=ref)

        code = await self.first(user).retry(ask)
        history.events.append(Responded(self.now(), name, chat, ref, code))

    # end of a round

    async def finish_and_check(self) -> None:
        """Wait until the system is idle, read everything, and check it.

        Raises:
            AssertionError: a guarantee was broken, or the system did not become idle.
        """
        try:
            await self._wait_until_idle()
            logs = await self._read_logs()
            await self._wait(lambda: not find_undelivered(self.history), "everything is delivered")
            await self._read_all(logs)
        except Exception as exc:
            # After a failure, report the violations in what was recorded so far.
            unread = [
                v for v in self._find_violations() if v.rule != "VOID"
            ]  # the end of the round was not read
            raise self._failure(f"{exc!r}\n{report(unread)}") from exc
        violations = self._find_violations()
        if violations:
            raise self._failure(report(violations))
        self._done += len(self.history.acks())

    def _find_violations(self) -> list[Violation]:
        problems = [text for device in self.sdk() for text in device.problems]
        return [
            *check(self.history),
            *(violation for device in self._raw() for violation in check_inboxes(device.inbox)),
            *(Violation("SDK", text) for text in problems),
        ]

    async def _wait(self, condition: Callable[[], object], what: str) -> None:
        start = time.monotonic()
        while not condition():
            if time.monotonic() > start + SETTLE_S:
                raise AssertionError(f"{what}: not within {SETTLE_S:g} s")
            await asyncio.sleep(0.1)
            for device in self._raw():
                device.collect()
        self._slowest[what] = max(self._slowest.get(what, 0.0), time.monotonic() - start)

    async def _wait_until_idle(self) -> None:
        await self._wait(lambda: all(task.done() for task in self._tasks), "all requests are sent")
        for task in self._tasks:
            task.result()  # only failed tasks are left
        await self.wait_for_answers()
        await self._wait(self._are_all_gateways_running, "all gateways are running")
        await self._wait(self._are_all_online, "all devices are online")
        await self._wait_until_persisted()

    async def _wait_until_persisted(self) -> None:
        async with redis.asyncio.Redis.from_url(self.stack.redis_url, socket_timeout=60) as client:
            start = time.monotonic()
            await eventually(
                functools.partial(_is_idle, client), SETTLE_S, "everything is persisted"
            )
            self._slowest["everything is persisted"] = max(
                self._slowest.get("everything is persisted", 0.0), time.monotonic() - start
            )

    def _are_all_gateways_running(self) -> bool:
        return len(self.fleet.children) == 3

    async def wait_for_answers(self) -> None:
        """Wait until the outcome of every request is known."""
        await self._wait(lambda: not self._open_refs(), "all requests are answered")

    def _open_refs(self) -> set[str]:
        asked = {request.ref for request in self.history.all_of(Requested)}
        return asked - {response.ref for response in self.history.all_of(Responded)}

    async def _read_logs(self) -> dict[str, tuple[LogEntry, ...]]:
        logs = {}
        for chat in self.history.chats:
            logs[chat] = await self._read_log(chat)
            self.history.events.append(Stored(chat, logs[chat]))
        return logs

    async def _read_log(self, chat: str) -> tuple[LogEntry, ...]:
        """Read the reference log of a chat."""
        return tuple(map(entry_of_item, await self.stack.read_items(chat)))

    async def _read_all(self, logs: dict[str, tuple[LogEntry, ...]]) -> None:
        hidden = [asked for asked in self.history.all_of(Requested) if asked.kind == "hide"]
        refused = {refusal.ref for refusal in self.history.refusals()}
        sdk = self.sdk()

        def is_hidden() -> bool:
            return all(
                device.hides(asked.chat, asked.target)
                for asked in hidden
                for device in sdk
                if device.user == asked.user and asked.ref not in refused
            )

        await self._wait(is_hidden, "messages deleted for oneself are hidden")
        self.history.events += [device.kept(chat) for device in sdk for chat in self.history.chats]
        async with asyncio.TaskGroup() as readers:
            for number in range(self.user_count):
                readers.create_task(self._read_as(number, logs))

    async def _read_as(self, number: int, logs: dict[str, tuple[LogEntry, ...]]) -> None:
        """Read everything as a user, mark it all as read, and read the lists of both devices."""
        user, first = self.users[number], self.first(number)
        mine = [
            c
            for c in logs
            if MembershipPeriods(self.history.chats[c], logs[c]).open_since(user) is not None
        ]
        for chat in mine:
            self.history.events.append(Final(user, chat, await first.read_whole(chat)))
            top = len(logs[chat])
            if top:
                await first.retry(lambda client, c=chat, t=top: client.mark(c, read=t))
        devices = self.devices[number]
        sdk = [device for device in devices if isinstance(device, SdkDevice)]
        for chat in mine:
            for device in sdk:
                await self._wait(
                    lambda d=device, c=chat: d.unread(c) == 0, "all read marks are received"
                )
        for device in devices:
            self.history.events += await device.read_lines(set(logs))

    def _failure(self, text: str) -> AssertionError:
        history = self._folder / f"history-{self.seed}.jsonl"
        history.write_bytes(dump_history(self.history))
        script = self._folder / f"script-{self.seed}.json"
        script.write_bytes(msgspec.json.encode(self.script))
        last = max(n for n, action in enumerate(self.script) if action.name == "begin")
        return AssertionError(
            f"seed {self.seed}, round {self.round}: CHAOS_SCRIPT={script} repeats the script,"
            f" CHAOS_SEED={self.seed} repeats the seed, with CHAOS_SECONDS if it was set;"
            f" history in {history}\n{text}\n"
            f"script of the round: {msgspec.json.encode(self.script[last:]).decode()}\n"
            f"{self.stack.logs()}"
        )


async def _is_idle(client: redis.asyncio.Redis) -> bool:
    """Return whether nothing waits to be delivered or persisted."""
    sizes = [await client.xlen(key) for key in await client.keys("*:backlog")]
    sizes += [await client.zcard(key) for key in await client.keys("*:undelivered")]
    return not any(sizes)
