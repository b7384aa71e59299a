"""One busy group: deliveries per second, CPU per delivery, and latency at half that rate.

    python -m tests.benchmarks.group_messages [--members 500] [--senders 16] [--large]
        [--seconds 5] [--warmup 2] [--runs 3] [--out F.json]

One gateway process and Redis share one core; the load generator has another. All members are
online. Each of `--senders` members has one message in flight: it sends the next when it receives
the event for its own message. Each run starts new servers and measures the group in this closed
loop, then in an open loop at half that rate. All senders and one member in sixteen check every
event and its latency; the other members only count events.
"""

from __future__ import annotations

import asyncio
from array import array
from time import perf_counter
from typing import Any

import click

from chatserver import config
from chatserver.domain.ids import ChatId, UserId
from chatserver.hot.chats.hot_chat_writer import HotChatWriter
from chatserver.hot.redis.factory import open_hot
from chatserver.loadtest import wire
from chatserver.loadtest.arrival_schedule import Pacer
from chatserver.loadtest.delivery_checker import Findings
from tests.benchmarks.support.checked_sessions import FIRST_NUMBER, Session, open_sessions
from tests.benchmarks.support.harness import Bench, benchmark, disable_garbage_collection, timing
from tests.benchmarks.support.measurements import CpuMeter, Figures, build_schedule, summarize_ms
from tests.benchmarks.support.pinned_stack import PinnedStack

CHAT = ChatId("g-load")
CHECKED_SHARE = 16
DRAIN_S = 20
_EVENT = b'{"type":"event"'


class Member(Session):
    """A member. `received` counts events; if `is_checking` is True, each event is also decoded."""

    def __init__(self, user: str, findings: Findings) -> None:
        super().__init__(user, findings)
        self.received = 0
        self.is_checking = False
        self.is_counting = False
        self.is_sending = False  # sends the next message after each event of its own
        self.sent = 0
        # scheduled time by (sender, ref), in an open loop
        self.due_times: dict[tuple[str, str], float] = {}
        self.latencies: list[float] = []
        self._tail = b""
        self._cs = 0

    def send_next(self) -> None:
        number = FIRST_NUMBER + self.sent
        self.sent += 1
        body = "x" * 100
        payload = (
            f'{{"type":"send","id":{number},"chat":"{CHAT}","ref":"{number}","body":"{body}"}}'
        )
        self.transport.write(wire.encode_client_frame(payload.encode()))

    def data_received(self, data: bytes) -> None:
        if not self.is_counting:
            super().data_received(data)
            return
        # Count `_EVENT` once, even if it is split between two reads.
        joined = self._tail + data
        self.received += joined.count(_EVENT)
        self._tail = joined[1 - len(_EVENT) :]
        if self.is_checking:
            super().data_received(data)

    def _handle_text(self, frame: dict[str, Any]) -> None:
        if frame["type"] == "ack":
            return
        is_event = frame["type"] == "event"
        # Events of a large chat have seq 0, because they are not in an inbox.
        if not is_event or frame["seq"]:
            super()._handle_text(frame)
        if is_event and frame["kind"] == "message":
            cs = frame["cs"]
            if cs != self._cs + 1:
                self.findings.add("disordered", f"{self.user}: seq {cs} after {self._cs}")
            self._cs = cs
            message = frame["message"]
            if self.due_times:
                due = self.due_times[message["sender"], message["ref"]]
                self.latencies.append(perf_counter() - due)
            if message["sender"] == self.user and self.is_sending:
                self.send_next()


async def open_group(redis_url: str, users: list[UserId], *, is_large: bool) -> None:
    """Load the group into Redis directly, without creating it in DynamoDB."""
    async with open_hot(config.Redis(url=redis_url)) as hot:
        members = dict.fromkeys(users, ("member", 1))
        await HotChatWriter(hot).open_chat(
            CHAT, "group", "load", 1, members, (0, 0), [], large=1 if is_large else 0
        )
        if is_large:
            for user in users:
                await hot.call("HSET", hot.keys.large(user), CHAT, "0:0")


class Group:
    """The members of the group, and the loops that measure it."""

    def __init__(
        self, members: list[Member], senders: int, cpu: CpuMeter, findings: Findings
    ) -> None:
        self.members, self.senders = members, members[:senders]
        self._cpu, self._findings = cpu, findings
        for number, member in enumerate(members):
            member.is_checking = number % CHECKED_SHARE == 0 or number < senders

    def count_received(self) -> int:
        return sum(member.received for member in self.members)

    async def run_closed(self, warmup_s: float, seconds: float) -> Figures:
        """Measure the rate of deliveries, with one message of each sender in flight."""
        for member in self.members:
            member.is_counting = True
        for sender in self.senders:
            sender.is_sending = True
            sender.send_next()
        figures = await self._cpu.measure(self.count_received, warmup_s, seconds)
        for sender in self.senders:
            sender.is_sending = False
        await self._drain()
        return figures

    async def run_open(self, rate: float, warmup_s: float, seconds: float) -> Figures:
        """Send at a fixed `rate`; latency counts from the scheduled time of each message."""
        due, order = build_schedule(rate, warmup_s + seconds, len(self.senders), seed=1)
        begin = perf_counter() + 0.1
        due_times: dict[tuple[str, str], float] = {}
        planned = {sender.user: FIRST_NUMBER + sender.sent for sender in self.senders}
        for due_at, index in zip(due, order, strict=True):
            user = self.senders[index].user
            due_times[user, str(planned[user])] = begin + due_at
            planned[user] += 1
        for member in self.members:
            member.is_counting, member.due_times = True, due_times
        lateness = array("d")
        pacer = Pacer(
            due,
            begin,
            lambda index, _: self.senders[order[index]].send_next(),
            on_late=lateness.append,
        )
        await asyncio.sleep(begin - perf_counter() + warmup_s)
        for member in self.members:
            member.latencies.clear()
        end = self._cpu.start(self.count_received)
        await pacer.finished
        figures = end()
        await self._drain()
        late = [s for s, d in zip(lateness, due, strict=True) if d >= warmup_s]
        return {
            "messages_per_second": round(rate, 1),
            "delivered": summarize_ms([s for m in self.members for s in m.latencies]),
            "sent_late": summarize_ms(late),
            **figures,
        }

    async def _drain(self) -> None:
        sent = sum(sender.sent for sender in self.senders)
        until = perf_counter() + DRAIN_S
        while perf_counter() < until and any(m.received < sent for m in self.members):
            await asyncio.sleep(0.05)
        for member in self.members:
            member.is_counting = False
            if member.received != sent:
                kind = "lost" if member.received < sent else "duplicate"
                self._findings.add(kind, f"{member.user}: {member.received} of {sent}")


@benchmark(
    click.option("--members", default=500, show_default=True),
    click.option("--senders", default=16, show_default=True, help="With one message in flight."),
    click.option("--large/--inboxes", default=False, help="A large chat, or one with inboxes."),
    *timing,
    runs=3,
)
async def main(
    bench: Bench, members: int, senders: int, large: bool, seconds: float, warmup_s: float
) -> Figures:
    pinned = PinnedStack(bench)
    pinned.start_gateway()
    names = [f"m{n:05}" for n in range(members)]
    await open_group(pinned.stack.redis_url, list(map(UserId, names)), is_large=large)
    opened = await open_sessions(pinned.stack, names, bench.findings, Member)
    group = Group(opened, senders, pinned.create_meter(), bench.findings)
    with disable_garbage_collection():
        closed = await group.run_closed(warmup_s, seconds)
        rate = closed["per_second"] / members / 2
        half = await group.run_open(rate, warmup_s, seconds)
    for member in opened:
        member.close()
    return {"closed": closed, "open_at_half": half}


if __name__ == "__main__":
    main()
