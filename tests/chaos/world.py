"""Users who chat during faults, and the checks of the result.

A `World` has a few users with devices and chats on a stack. Each device sends, reads, marks and
reconnects automatically, through any available gateway, as the protocol requires. A scenario
injects faults meanwhile. `finish_and_check` then waits until everything has arrived, reads
everything from the history and from DynamoDB, and runs the checker. A seed determines all random
choices; it is part of every failure message.
"""

from __future__ import annotations

import asyncio
import functools
import operator
import os
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import redis.asyncio

from tests.support.history.checker import check, find_undelivered
from tests.support.history.events import History, Lost, Requested, Stored, dump_history
from tests.support.history.violation import report
from tests.support.rawchat import Failed, RawChat
from tests.support.recorder import Recorder
from tests.support.servers.processes import eventually
from tests.support.stack import Stack
from tests.support.wire import Ended, Refused

SECONDS = float(os.environ.get("CHAOS_SECONDS", "4"))  # of traffic before and after a fault
USERS = 6
PENDING_MAX = 16  # sends of a device without a response
PAUSE_S = 0.03  # between two sends of a device, on average
RETRY_S = 0.3  # after a temporary refusal
UNANSWERED_S = 8.0  # longer than a gateway takes to respond `unavailable`
DEADLINE_S = 60.0  # only a failure takes this long
SETTLE_S = 60.0

T = TypeVar("T")
_BROKEN = (Ended, Refused, OSError, TimeoutError)


def new_seed() -> int:
    """Return the seed of a run: the configured one, or a new one."""
    return int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)


async def _is_empty(client: redis.asyncio.Redis, stream: bytes) -> bool:
    return await client.xlen(stream) == 0


class Person:
    """One device that sends and reads continuously while the world runs."""

    def __init__(self, world: World, chat: RawChat, seed: int) -> None:
        self.chat = chat
        self.chats: list[str] = []
        self._world = world
        self._random = random.Random(seed)
        self._count = 0
        self.problems: list[str] = []

    async def live(self) -> None:
        """Stay connected through any available gateway."""
        while True:
            ports = self._world.ports()
            try:
                if not ports:
                    raise Ended("no gateway is up")
                await self.chat.reconnect(port=self._random.choice(ports))
            except _BROKEN:
                await asyncio.sleep(self._random.uniform(0.05, 0.3))
                continue
            await self.chat.ended.wait()
            last = self.chat.frames[-1]
            if last["type"] == "bye":
                await asyncio.sleep(last.get("retry_after_ms", 0) / 1000)

    async def send_messages(self) -> None:
        """Send, and sometimes read or mark, until the world is at rest."""
        while not self._world.is_resting:
            await asyncio.sleep(self._random.expovariate(1 / PAUSE_S))
            if not self.chat.is_connected:
                continue
            chat = self._random.choice(self.chats)
            value = self._random.random()
            try:
                if value < 0.03:
                    await self._read(chat)
                elif value < 0.10:
                    await self._mark(chat)
                elif len(self.chat.pending) < PENDING_MAX:
                    self._count += 1
                    await self.chat.send_nowait(chat, f"{self.chat.device} says {self._count}")
            except _BROKEN:
                continue
            except Failed as exc:
                if not exc.is_temporary:
                    self.problems.append(f"{self.chat.device}: {exc}")

    async def _read(self, chat: str) -> None:
        match self._random.randrange(3):
            case 0:
                await self.chat.read_page(chat, limit=self._random.randrange(1, 60))
            case 1:
                await self.chat.read_page(chat, before=self._random.randrange(1, 400), limit=50)
            case _:
                await self.chat.read_page(chat, after=self._random.randrange(0, 400), limit=50)

    async def _mark(self, chat: str) -> None:
        messages = self.chat.messages(chat)
        if messages:
            await self.chat.send_frame("mark", chat=chat, read=messages[-1]["seq"])

    async def retry(self) -> None:
        """Retry sends that were refused temporarily, unanswered, or lost in a new epoch."""
        while True:
            await asyncio.sleep(RETRY_S)
            if not self.chat.is_connected:
                continue
            if self.chat.lost:
                try:
                    await self.chat.resend_unstored()
                except _BROKEN:
                    continue
            now = self.chat.recorder.now()
            overdue = [
                pending
                for pending in self.chat.pending.values()
                if (pending.attempt is not None and pending.attempt.done())
                or now - pending.attempted_at > UNANSWERED_S
            ]
            if overdue:
                try:
                    await self.chat.resend()
                except _BROKEN:
                    continue


class World:
    """The users of one run: an async context manager. Call `finish_and_check` before its end."""

    def __init__(self, stack: Stack, folder: Path, seed: int) -> None:
        self.stack = stack
        self.ports = stack.ports  # the gateways that users may choose
        self.recorder = Recorder()
        self.is_resting = False
        self.people: list[Person] = []
        self.seed = seed
        self.random = random.Random(seed)
        self._folder = folder
        self._store_wait_s = SETTLE_S
        self._tasks: list[asyncio.Task[None]] = []
        self._talks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> World:
        print(f"chaos seed: {self.seed}")  # noqa: T201  # shown when a test fails
        stem = f"{time.time_ns():x}"
        users = [f"u{number}-{stem}" for number in range(USERS)]
        for user in users:
            self._add_device(user, f"{user}-phone")
        self._add_device(users[0], f"{users[0]}-tablet")
        for person in self.people:
            self._start(person.live(), f"live of {person.chat.device}")
        await self._wait(
            lambda: all(p.chat.welcome for p in self.people), "all devices are connected"
        )
        await self._open_chats(users)
        for person in self.people:
            self._start(person.retry(), f"retry of {person.chat.device}")
            self._talks.append(self._start(person.send_messages(), f"talk of {person.chat.device}"))
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        self.stack.is_broken = self.stack.is_broken or kind is not None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for person in self.people:
            await person.chat.abort()

    def _add_device(self, user: str, device: str) -> None:
        chat = self.stack.chat_of(user, device=device, recorder=self.recorder)
        self.people.append(Person(self, chat, self.random.getrandbits(32)))

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self._tasks.append(task)
        return task

    async def _open_chats(self, users: list[str]) -> None:
        first = self.people[0].chat
        groups = [users[:4], users]
        for number, members in enumerate(groups):
            create = {"ref": f"g-{number}", "members": members[1:]}
            answer = await self._retry_until_answered(
                functools.partial(first.request, "create_chat", **create)
            )
            self._join(answer["chat"]["chat"], members)
        for a, b in ((0, 1), (2, 3), (4, 5), (0, 5)):
            device = next(p.chat for p in self.people if p.chat.user == users[a])
            open_it = functools.partial(device.request, "open_direct", user=users[b])
            answer = await self._retry_until_answered(open_it)
            self._join(answer["chat"]["chat"], [users[a], users[b]])

    def _join(self, chat: str, members: list[str]) -> None:
        self.recorder.history.chats[chat] = list(members)
        for person in self.people:
            if person.chat.user in members:
                person.chats.append(chat)

    # for scenarios

    @property
    def history(self) -> History:
        """The events so far."""
        return self.recorder.history

    def record_loss(self, what: str) -> None:
        """Record that Redis loses data that no other tier has, just before it does."""
        self.recorder.add(Lost(self.recorder.now(), what))

    async def chat_for(self, seconds: float) -> None:
        """Let users chat for a fixed time.

        The duration is the purpose, so a plain sleep is correct.
        """
        await asyncio.sleep(seconds)

    async def wait_for_acks(self, count: int = 20, deadline_s: float = DEADLINE_S) -> None:
        """Wait until `count` more messages are acked."""
        start = len(self.history.acks())
        await self._wait(
            lambda: len(self.history.acks()) >= start + count,
            f"{count} more messages are acked",
            deadline_s,
        )

    async def _wait(
        self, condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S
    ) -> None:
        give_up = time.monotonic() + deadline_s
        while not condition():
            if time.monotonic() > give_up:
                raise self._failure(f"{what}: not within {deadline_s:g} s")
            await asyncio.sleep(0.1)

    # end of the run

    async def finish_and_check(self) -> None:
        """Wait until everything has arrived, read everything, and check it.

        Raises:
            AssertionError: a guarantee was broken, or something never arrived.
        """
        await self.quiesce()
        await self._wait(self._is_delivered, "every device has every event", SETTLE_S)
        await self._read_everything()
        violations = check(self.history)
        problems = [problem for person in self.people for problem in person.problems]
        if violations or problems:
            raise self._failure("\n".join([report(violations), *problems[:20]]))
        acked, sent = len(self.history.acks()), len(self.history.all_of(Requested))
        print(f"chaos seed {self.seed}: {acked} acks of {sent} sends, all guarantees kept")  # noqa: T201

    async def quiesce(self) -> None:
        """Stop all users, and wait until the outcome of every send is known."""
        self.is_resting = True
        await asyncio.gather(*self._talks)
        await self._wait(self._is_answered, "every send has a definite answer", SETTLE_S)

    async def quiesce_until_stored(self) -> None:
        """Stop all users, and wait until DynamoDB has all messages and marks."""
        await self.quiesce()
        await self._wait(self._is_delivered, "every device has every event", SETTLE_S)
        client = redis.asyncio.Redis.from_url(self.stack.redis_url, socket_timeout=60)
        backlogs = await client.keys("*:backlog")
        for backlog in backlogs:
            await eventually(functools.partial(_is_empty, client, backlog), SETTLE_S)
        await client.aclose()

    def epochs(self) -> list[str]:
        """Return the current epoch of each device."""
        return [person.chat.cursor[0] if person.chat.cursor else "" for person in self.people]

    async def wait_for_restarts(self, since: list[str]) -> None:
        """Wait until every device is in another epoch than before."""

        def have_all_restarted() -> bool:
            return all(map(operator.ne, self.epochs(), since))

        await self._wait(have_all_restarted, "every device has restarted", SETTLE_S)

    def resume(self) -> None:
        """Let the users chat again."""
        self.is_resting = False
        self._store_wait_s = SETTLE_S
        self._talks = [
            self._start(person.send_messages(), f"talk of {person.chat.device}")
            for person in self.people
        ]

    async def wait_until_stored(self) -> None:
        """Wait until every acked message is in DynamoDB. Call `quiesce` first."""
        give_up = time.monotonic() + self._store_wait_s
        for chat in self.history.chats:
            acked = {(ack.user, ack.ref) for ack in self.history.acks() if ack.chat == chat}
            while not acked <= {(r.sender, r.ref) for r in await self.stack.read_warm(chat)}:
                if time.monotonic() > give_up:
                    return  # the checker reports the missing entries
                await asyncio.sleep(0.1)
        self._store_wait_s = 0.0

    def _is_answered(self) -> bool:
        return not any(person.chat.pending for person in self.people)

    def _is_delivered(self) -> bool:
        return not find_undelivered(self.history)

    async def _read_everything(self) -> None:
        await self.wait_until_stored()
        for chat in sorted(self.history.chats):
            for device in self._one_device_each(chat):
                await self._retry_until_answered(functools.partial(device.read_final, chat))
            self.recorder.add(Stored(chat, await self.stack.read_warm(chat)))
        for person in self.people:
            await self._retry_until_answered(person.chat.read_list)

    def _one_device_each(self, chat: str) -> list[RawChat]:
        return list({p.chat.user: p.chat for p in self.people if chat in p.chats}.values())

    async def _retry_until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Retry until the request succeeds; tiers may still be recovering or stalled."""
        give_up = time.monotonic() + SETTLE_S
        while True:
            try:
                return await ask()
            except (*_BROKEN, Failed) as exc:
                if time.monotonic() > give_up:
                    raise self._failure(f"the request was not answered: {exc!r}") from exc
            await asyncio.sleep(0.2)

    def _failure(self, text: str) -> AssertionError:
        path = self._folder / f"history-{self.seed}.jsonl"
        path.write_bytes(dump_history(self.history))
        return AssertionError(
            f"seed {self.seed} (CHAOS_SEED), history in {path}\n{text}\n{self.stack.logs()}"
        )
