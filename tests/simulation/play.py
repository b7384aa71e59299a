"""The users of one run, the history of their chats, and its checks.

This is the `FullSimulation` of the chaos tests with fewer users, on simulated servers: the same
devices, the same history and the same checker. Waiting costs nothing here, so deadlines are long.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Collection, Coroutine
from pathlib import Path
from typing import Any, cast

import msgspec

from chatserver.client.model import Bounds
from chatserver.domain.clock import SystemClock
from chatserver.features.push.warm.subscriptions import PushSubscriptions
from tests.chaos.devices import SdkDevice
from tests.chaos.full_simulation import Absent, FullSimulation
from tests.chaos.raw_devices import RawDevice
from tests.chaos.simulation import SETTLE_S, Simulation
from tests.chaos.world import Person
from tests.simulation.cluster import GATEWAY_PORT, Cluster
from tests.simulation.dynamodb.client import make_client
from tests.simulation.erasure import ErasedUser
from tests.simulation.process import PROCESS, Process
from tests.simulation.pushes import Browser
from tests.simulation.searches import check_searches
from tests.simulation.store_invariants import find_violations, read_stores
from tests.simulation.stores.write_invariants import WriteInvariants
from tests.simulation.story import describe_violation
from tests.support.history.checker import find_undelivered
from tests.support.history.events import (
    Event,
    Final,
    LogEntry,
    Lost,
    MembershipPeriods,
    PushSent,
    Stored,
    Trimmed,
    Watermark,
)
from tests.support.history.violation import Violation, report
from tests.support.rawchat import RawChat
from tests.support.recorder import Recorder
from tests.support.servers.tcp_proxy import TcpProxy

USERS = 5
DEVICES = 8  # the first users have two; all use the SDK, except the second device of one user
RAW_USER = 2
GROUPS = (range(5), range(1, 4))  # the first user of each group owns it
PAIRS = ((0, 1), (2, 3), (4, 0))
CHATS = len(GROUPS) + len(PAIRS)
ABSENT_USER = "absent"
# Events that a device keeps for its application. A full queue leaves events on the server.
EVENTS_MAX = (2_000, 2_000, 2)
PUSH_S = 100.0  # longer than the push worker waits for a push service that has failed
STORES_S = 90.0  # background work may first wait for the lease of a killed archive worker, 60 s


class SimulatedStack:
    """The part of a `Stack` that `FullSimulation` uses."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.port = GATEWAY_PORT
        self.redis_url = cluster.settings.redis.url
        self.token = cluster.token
        self.add_users = cluster.add_users
        self.stack = self.fleet = self  # the parts of a `FullStack`
        self.links: dict[str, Any] = {}

    def chat_of(
        self, user: str, *, port: int, device: str | None, recorder: Recorder | None
    ) -> RawChat:
        return RawChat(user, port, self.token, device=device, recorder=recorder)

    async def read_items(self, chat: str) -> list[dict[str, Any]]:
        return self.cluster.read_items(chat)

    async def read_marks(self, chat: str) -> dict[str, tuple[int, int]]:
        return self.cluster.read_marks(chat)

    async def read_archive(self, chat: str) -> list[dict[str, Any]]:
        return self.cluster.objects.read_archive(chat)

    def end_faults(self) -> None:
        self.cluster.end_faults()

    def logs(self) -> str:
        return ""


class Play(FullSimulation):
    """The users and chats of one seed. Use as an async context manager."""

    user_count = USERS
    groups = GROUPS
    push_s = PUSH_S

    def __init__(self, cluster: Cluster, seed: int, features: Collection[str]) -> None:
        self.cluster = cluster
        super().__init__(cast(Any, SimulatedStack(cluster)), Path(), seed)
        self._stem = f"{seed}"
        self.users = [f"u{number}" for number in range(USERS)]
        self.failure = ""
        self._features = features
        events_max = random.Random(f"bounds {seed}").choice(EVENTS_MAX)
        self._bounds = Bounds(events_max=events_max)
        self._browsers: list[Browser] = []
        self.erased = ErasedUser(self) if cluster.has_api else None
        self.faults: Collection[str] = ()  # the names of the actions that are faults
        self._store_violations: list[Violation] = []
        self._writes = WriteInvariants(cluster.find_unstored)
        cluster.redis.scripting.checks = self._writes.commands
        cluster.dynamodb.server.on_change.append(self._writes.check_item)
        self._stored: dict[str, int] = {}  # newest seq of each chat that was found to be stored

    def record(self, event: Event) -> None:
        """Record an event. What a device takes for stored must be stored at that moment."""
        super().record(event)
        if isinstance(event, Watermark) and event.upto > self._stored.get(event.chat, 0):
            missing = self.cluster.find_unstored(event.chat, event.upto)
            if missing:
                text = f"{event}, but {missing} are not stored"
                self._store_violations.append(Violation("P1", text))
            self._stored[event.chat] = event.upto

    async def __aenter__(self) -> Play:
        # Users who are older than the epoch would wait for the index (`UserLoader`).
        await self._wait(self._are_all_gateways_running, "all gateways are running")
        await self.stack.add_users(self.users)
        for number, user in enumerate(self.users):
            devices: list[SdkDevice | RawDevice] = [self._new_sdk(user, 0, None)]
            if number == RAW_USER:
                devices.append(self._new_raw(user, number))
            elif number < DEVICES - USERS:
                devices.append(self._new_sdk(user, 1, None))
            self.devices.append(devices)
            self.history.devices[user] = [device.name for device in devices]
        opening = [self._run_as(device, device.open()) for device in self.sdk()]
        await asyncio.gather(*opening)
        await self._wait(self._are_all_online, "all devices are online")
        if "push" in self._features:
            await self._subscribe()
        self._collector = asyncio.create_task(self._collect(), name="collector")
        return self

    async def _subscribe(self) -> None:
        """Register browsers of a user without a device, and of some with devices."""
        service, settings = self.cluster.pushes, self.cluster.settings.warm
        subscriptions = PushSubscriptions(make_client(self.cluster.dynamodb, settings), 10)
        await self.stack.add_users([ABSENT_USER])
        browsers = [Browser(service, user) for user in (ABSENT_USER, *self.users[:2])]
        for browser in browsers:
            await subscriptions.put(browser.subscription, SystemClock().time())
        self.absent = [Absent(ABSENT_USER, cast(Any, browsers[0]))]
        self._browsers = browsers[1:]

    def _run_as(
        self, device: SdkDevice | RawDevice, work: Coroutine[Any, Any, Any]
    ) -> asyncio.Task[Any]:
        """Run a coroutine, and all tasks that it starts, as the device's process."""
        return _start_as(Process(device.name, "client"), work)

    def _new_sdk(self, user: str, number: int, link: TcpProxy | None) -> SdkDevice:
        url = f"ws://127.0.0.1:{GATEWAY_PORT}/"
        token = functools.partial(self.stack.token, user)
        return SdkDevice(self, user, f"{user}-{number}", url, token, bounds=self._bounds)

    def _new_raw(self, user: str, number: int) -> RawDevice:
        chat = self.stack.chat_of(
            user, port=GATEWAY_PORT, device=f"{user}-raw", recorder=Recorder()
        )
        person = Person(cast(Any, self), chat, number)
        process = Process(chat.device, "client")
        self._loops.append(_start_as(process, person.live()))
        self._loops.append(_start_as(process, person.retry()))
        return RawDevice(self, chat)

    async def begin(self) -> None:
        """Open all chats."""
        if self.erased is not None:
            await self.erased.open()
            self._former.update(self.erased.chats)
        await Simulation.begin(self)
        opening = [self._open_absent(number) for number in range(len(self.absent))]
        self.chats += await asyncio.gather(*opening)

    def _names_of(self, users: range) -> list[str]:
        names = [self.users[number] for number in users]
        return names + [one.user for one in self.absent] if users == GROUPS[-1] else names

    def list_pairs(self) -> list[tuple[int, int]]:
        return list(PAIRS)

    # end of the run

    async def finish_and_check(self) -> None:
        """Check the history, and then that nothing is left of the erased user."""
        await super().finish_and_check()
        if self.erased is not None:
            await self.erased.finish_and_check()

    def _are_all_gateways_running(self) -> bool:
        return all(member.is_ready for member in self.cluster.members.values())

    async def _wait_until_persisted(self) -> None:
        await self._wait_until_stored()
        await self._wait(self.cluster.is_idle, "everything is persisted")
        if self.cluster.streams is not None:
            restored = lambda: not self.cluster.has_lost_expired()  # noqa: E731
            await self._wait(restored, "what TTL removed too early is restored")

    async def _wait_until_stored(self) -> None:
        """Wait until all members' sends are stored.

        A device repeats the acked sends that Redis has lost, after its reset, which may come late.
        """
        give_up = self.now() + SETTLE_S / 4  # then the checker judges
        while self.now() < give_up and [
            name for chat in self.history.chats for name in await self._list_unstored(chat)
        ]:
            await asyncio.sleep(0.1)
            for device in self._raw():
                device.collect()

    async def _list_unstored(self, chat: str) -> list[str]:
        """Return the devices of members that wait until their sends in a chat are stored."""
        devices = [device for device in self._all() if device.unstored(chat).refs]
        if not devices:
            return []
        periods = MembershipPeriods(self.history.chats[chat], await super()._read_log(chat))
        return [device.name for device in devices if periods.open_since(device.user)]

    async def quiesce(self) -> None:
        """Wait until the system is idle, and check the stored data."""
        await super().quiesce()
        await self._wait_until_delivered()
        await self._check_stores()

    async def _wait_until_delivered(self) -> None:
        """Wait until all devices have all entries, before later entries reveal what they lack."""
        stored = [Stored(chat, await self._read_log(chat)) for chat in self.history.chats]

        def find_missing() -> list[Violation]:
            events = [*self.history.events, *stored]
            return find_undelivered(msgspec.structs.replace(self.history, events=events))

        try:
            await self._wait(lambda: not find_missing(), "everything is delivered")
        except AssertionError as exc:
            raise self._failure(f"{exc}\n{report(find_missing())}") from exc

    async def _read_log(self, chat: str) -> tuple[LogEntry, ...]:
        log = await super()._read_log(chat)
        periods = MembershipPeriods(self.history.chats[chat], log)
        sizes = (
            sum(periods.is_member_after(user, entry.seq) for user in self.users) for entry in log
        )
        if max(sizes, default=0) > self.cluster.settings.chats.fanout_members_max:
            redis = self.cluster.settings.redis
            may_be_evicted = redis.chat_idle_s < STORES_S
            upto = len(log) if may_be_evicted else len(log) - self.cluster.log_min
            self.history.events.append(Trimmed(chat, upto))
        return log

    async def _read_all(self, logs: dict[str, tuple[LogEntry, ...]]) -> None:
        await super()._read_all(logs)
        if "search" in self._features:
            for number, user in enumerate(self.users):
                finals = [final for final in self.history.all_of(Final) if final.user == user]
                self._store_violations += await check_searches(self.first(number), finals)
        await self._wait_until_persisted()  # the read marks
        await self._check_stores()

    async def _check_stores(self) -> None:
        """Record the violations in the stored data that background work does not remove."""
        has_lost = bool(self.history.all_of(Lost))
        give_up = self.now() + (0.0 if self._store_violations else STORES_S)
        while found := find_violations(read_stores(self.cluster, has_lost=has_lost)):
            if self.now() > give_up:
                known = set(self._store_violations)
                self._store_violations += [each for each in found if each not in known]
                break
            await asyncio.sleep(1.0)  # virtual time

    def _find_violations(self) -> list[Violation]:
        return [*super()._find_violations(), *self._store_violations, *self._writes.violations]

    async def _record_pushes(self, logs: dict[str, tuple[LogEntry, ...]]) -> None:
        if self.absent:
            await super()._record_pushes(logs)
            for browser in self._browsers:  # of users with devices, who may get none
                self._add_pushes(browser)

    def _add_pushes(self, browser: Browser) -> None:
        user = browser.subscription.user
        for taken in browser.taken:
            notice, t = taken.notice, taken.t - self._start
            if notice.chat in self.history.chats:
                self.history.events.append(PushSent(t, user, notice.chat, notice.seq, notice.ts))

    def _list_large(self, logs: dict[str, tuple[LogEntry, ...]]) -> tuple[str, ...]:
        """Return the chats that had too many members for a small chat, at any time."""
        members_max = self.cluster.settings.chats.fanout_members_max
        return tuple(
            chat
            for chat, log in logs.items()
            if len(MembershipPeriods(self.history.chats[chat], log).of) > members_max
        )

    def _failure(self, text: str) -> AssertionError:
        story = describe_violation(text, self.history, self.cluster.loop.trace.lines, self.faults)
        return AssertionError("\n".join([text, *story]))


def _start_as(process: Process, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    token = PROCESS.set(process)
    try:
        return asyncio.get_running_loop().create_task(work)
    finally:
        PROCESS.reset(token)
