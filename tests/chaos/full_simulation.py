"""A `Simulation` on a `FullStack`, with absent users, a large group, and the archive as reference.

There are also direct chats with users who never connect and receive pushes, and a large group in
which most members have no device.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.chaos.devices import SdkDevice
from tests.chaos.full_stack import PASSIVE_USERS_MAX, FullStack
from tests.chaos.raw_devices import RawDevice
from tests.chaos.simulation import GROUPS, PAIRS, SETTLE_S, Simulation
from tests.support.history.events import (
    LogEntry,
    Lost,
    MembershipPeriods,
    PushesRead,
    PushSent,
    ReadMark,
    Requested,
    Restarted,
    Unread,
    Unstored,
)
from tests.support.history.violation import Violation
from tests.support.links import BareLink
from tests.support.recorder import entry_of_item
from tests.support.servers.push_service import Browser

ABSENT = 3  # users without a device; each has a direct chat, and all are in the last small group
LARGE_USERS = 14  # initial members with devices; the other users join later
SMALL_MEMBERS_MAX = 6  # a chat with at most this many members is never a large chat
COLLECT_S = 0.02
PUSH_S = 20.0

FIRST_ABSENT_CHAT = len(GROUPS) + PAIRS
LARGE_GROUP = FIRST_ABSENT_CHAT + ABSENT
CHATS = LARGE_GROUP + 1


@dataclasses.dataclass
class Absent:
    """A user who never connects to a gateway."""

    user: str
    browser: Browser


class FullSimulation(Simulation):
    """The users and chats of one seed, for one round. Use as an async context manager."""

    push_s = PUSH_S

    def __init__(self, full: FullStack, folder: Path, seed: int) -> None:
        super().__init__(full.stack, full.fleet, folder, seed)
        self.full = full
        self.clients = BareLink(self.client_link)
        self.absent: list[Absent] = []
        self._collector: asyncio.Task[None] | None = None

    async def __aenter__(self) -> FullSimulation:
        await super().__aenter__()
        names = [f"absent{number}-{self._stem}" for number in range(ABSENT)]
        await self.stack.add_users(names)
        for name in names:
            self.absent.append(Absent(name, await self.full.subscribe(name)))
        self._collector = asyncio.create_task(self._collect(), name="collector")
        return self

    async def __aexit__(self, *args: object) -> None:
        if self._collector is not None:
            self._collector.cancel()
            await asyncio.gather(self._collector, return_exceptions=True)
        await super().__aexit__(*args)

    async def _collect(self) -> None:
        """Record received frames promptly, because losses are assigned to epochs by time."""
        while True:
            for device in self._raw():
                device.collect()
            await asyncio.sleep(COLLECT_S)

    async def begin(self) -> None:
        """Open all chats."""
        start = self.now()
        await super().begin()
        self.chats += await asyncio.gather(
            *(self._open_absent(number) for number in range(ABSENT)), self._open_large_group()
        )
        self._slowest["all chats are open"] = self.now() - start

    def _names_of(self, users: range) -> list[str]:
        names = super()._names_of(users)
        return names + [one.user for one in self.absent] if users == GROUPS[-1] else names

    async def _open_absent(self, number: int) -> str:
        return await self._open_direct_with(number, self.absent[number].user)

    async def _open_large_group(self) -> str:
        members = self.users[:LARGE_USERS]
        members += self.full.passive_users[: PASSIVE_USERS_MAX + 1 - len(members)]
        chat = await self._create(0, members, f"large-{self._stem}")
        joins = (
            self.change(number, chat, "join") for number in range(LARGE_USERS, len(self.users))
        )
        await asyncio.gather(*joins)
        return chat

    # end of the run

    async def quiesce(self) -> None:
        """Wait until all tasks are done and no operation is in progress."""
        last = ""

        def is_done() -> bool:
            nonlocal last
            running = [task.get_name() for task in self._tasks if not task.done()]
            last = running[0] if running else last
            return not running

        start = self.now()
        try:
            await self._wait(is_done, "all tasks are done")
        except AssertionError as exc:
            running = [task.get_name() for task in self._tasks if not task.done()]
            raise self._failure(f"{exc}: {', '.join(running)}") from exc
        self._slowest[f"all tasks are done, last {last},"] = self.now() - start
        self._slowest.pop("all tasks are done", None)
        self.full.end_faults()
        await self._wait_until_idle()
        await self._wait(self._have_all_restarted, "all devices are reset")

    def _have_all_restarted(self) -> bool:
        last = max((lost.t for lost in self.history.all_of(Lost)), default=None)
        if last is None:
            return True
        restarts = self.history.all_of(Restarted)
        starts = {each.device for each in restarts if each.is_new_epoch and each.t > last}
        return starts >= {device.name for device in self._all()}

    async def _read_log(self, chat: str) -> tuple[LogEntry, ...]:
        # Read DynamoDB first. An entry archived meanwhile is then in at least one of the two
        # results.
        items = await self.stack.read_items(chat)
        found = {entry["seq"]: entry for entry in await self.full.read_archive(chat)}
        entries = {seq: msgspec.convert(entry, LogEntry) for seq, entry in found.items()}
        for item in items:
            seq, rev = int(item["seq"]["N"]), int(item.get("rev", {"N": "0"})["N"])
            if seq not in found or found[seq].get("rev", 0) <= rev:
                entries[seq] = entry_of_item(item)
        return tuple(entries[seq] for seq in sorted(entries))

    async def _read_all(self, logs: dict[str, tuple[LogEntry, ...]]) -> None:
        start = self.now()
        await self._count_unread(logs)
        await super()._read_all(logs)
        self._slowest["everything is read"] = self.now() - start
        start = self.now()
        await self._read_marks(logs)
        await self._read_watermarks(logs)
        await self._record_pushes(logs)
        self._slowest["marks, watermarks and pushes"] = self.now() - start

    async def _count_unread(self, logs: dict[str, tuple[LogEntry, ...]]) -> None:
        for device in self.sdk():
            for chat, read, unread in await device.read_counts():
                if chat in logs:
                    self.history.events.append(Unread(device.user, device.name, chat, read, unread))

    async def _read_marks(self, logs: dict[str, tuple[LogEntry, ...]]) -> None:
        """Read the read marks of all users from DynamoDB, once they are stored."""
        for chat, log in logs.items():
            members = set(MembershipPeriods(self.history.chats[chat], log).members()) & set(
                self.users
            )
            give_up = self.now() + SETTLE_S / 4
            while True:
                now = self.now()
                marks = await self.stack.read_marks(chat)
                reads = {user: marks.get(user, (0, 0))[0] for user in members}
                if now > give_up or all(read >= len(log) for read in reads.values()):
                    break
                await asyncio.sleep(0.2)
            self.history.events += [
                ReadMark(now, self.now(), user, chat, read, is_final=True)
                for user, read in reads.items()
            ]

    async def _read_watermarks(self, logs: dict[str, tuple[LogEntry, ...]]) -> None:
        """Wait for confirmations of the operations that are not known to be stored.

        The SDK asks after some seconds; a protocol device is notified when it reconnects.
        """
        give_up = self.now() + SETTLE_S / 4
        periods = {
            chat: MembershipPeriods(self.history.chats[chat], log) for chat, log in logs.items()
        }

        def waiting(devices: Sequence[SdkDevice | RawDevice]) -> list[Unstored]:
            return [
                device.unstored(chat)
                for device in devices
                for chat in logs
                if periods[chat].open_since(device.user) and device.unstored(chat).refs
            ]

        resuming = [device for device in self._raw() if waiting([device])]
        for device in resuming:
            await device.chat.abort()  # its `live` loop reconnects
        while waiting(self._all()) and self.now() < give_up:
            await asyncio.sleep(0.1)
        self.history.events += waiting(self._all())

    async def _record_pushes(self, logs: dict[str, tuple[LogEntry, ...]]) -> None:
        large = self._list_large(logs)
        seen = {one.user: 0 for one in self.absent}
        give_up = self.now() + self.push_s
        while True:
            for one in self.absent:
                taken = one.browser.taken
                for push in taken[seen[one.user] :]:
                    notice = one.browser.read(push)
                    place = (notice["chat"], notice["seq"], notice["ts"])
                    self.history.events.append(PushSent(push.t - self._start, one.user, *place))
                seen[one.user] = len(taken)
            if self.now() > give_up or self._has_pushes(logs, large):
                break
            await asyncio.sleep(0.1)
        self.history.events += [PushesRead(one.user, large) for one in self.absent]

    def _list_large(self, logs: dict[str, tuple[LogEntry, ...]]) -> tuple[str, ...]:
        """Return the chats that may be large, whose pushes go only to mentioned members."""
        return tuple(
            chat
            for chat, log in logs.items()
            if len(MembershipPeriods(self.history.chats[chat], log).members()) > SMALL_MEMBERS_MAX
        )

    def _has_pushes(self, logs: dict[str, tuple[LogEntry, ...]], large: tuple[str, ...]) -> bool:
        sent = {(push.user, push.chat, push.seq) for push in self.history.all_of(PushSent)}
        for one in self.absent:
            for chat, log in logs.items():
                since = MembershipPeriods(self.history.chats[chat], log).open_since(one.user)
                newest = [e.seq for e in log if e.kind == "text" and not e.deleted]
                is_due = since is not None and bool(newest) and newest[-1] >= since
                if is_due and chat not in large and (one.user, chat, newest[-1]) not in sent:
                    return False
        return True

    def _find_violations(self) -> list[Violation]:
        problems = [text for device in self._raw() for text in device.problems]
        return [*super()._find_violations(), *(Violation("P5", text) for text in problems)]

    def acks(self) -> int:
        """Return the number of successful operations."""
        return len(self.history.acks())

    def slowest(self) -> str:
        """Return the longest waits at the end of the round, with their durations."""
        return ", ".join(
            f"{what} {seconds:.0f} s" for what, seconds in self._slowest.items() if seconds > 1
        )

    def asked(self) -> int:
        """Return the number of requested operations."""
        return len(self.history.all_of(Requested))
