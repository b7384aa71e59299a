"""One busy group: deliveries a second, what one costs, and its share of a bare loop.

    python -m tests.load.groups [--members 500] [--senders 16] [--seconds 5] [--out F.json]

One gateway process and Redis share one core, the load generator has another. All members are
online. `--senders` members keep one message each under way: the next is sent when the sender has
its own event. Each run starts a fresh stack, then, in the same place, the bare loop, which writes
the same bytes to as many sockets and keeps nothing; once with a write per message and socket, once
with the messages of a read joined. Before that the group in an open loop at half of its rate, for
the latencies. One member in sixteen checks every event and takes its time; others count them.
It prints a table, writes JSON and never gates: it exits with 1 only if a message went wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import resource
import statistics
import sys
import tempfile
from array import array
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import uvloop

from chatserver import config
from chatserver.domain.ids import ChatId, UserId
from chatserver.hot.chats.chat_loader import HotChatLoader
from chatserver.hot.redis.factory import open_hot
from chatserver.loadtest import wire
from chatserver.loadtest.arrival_schedule import Pacer, schedule
from tests.load import probe, stack
from tests.load.connection import Connection, Tally
from tests.load.people import open_sessions
from tests.load.phases import Cores, percentiles_ms, spent
from tests.load.session import FIRST_NUMBER, Session

CHAT = ChatId("g-load")
WATCHED_SHARE = 16
DRAIN_S = 20
_EVENT = b'{"type":"event"'


class Member(Session):
    """A member. `heard` counts the events that came; a watched one also looks at each."""

    def __init__(self, user: str, tally: Tally) -> None:
        super().__init__(user, tally)
        self.heard = 0
        self.is_watched = False
        self.is_counting = False
        self.sent = 0
        self.limit = 0
        self.due_of: dict[tuple[str, str], float] = {}  # of an open loop: sender and ref to time
        self.latencies: list[float] = []
        self._tail = b""
        self._cs = 0

    def send_next(self) -> None:
        """Send one message to the group."""
        number = FIRST_NUMBER + self.sent
        self.sent += 1
        body = "x" * 100
        payload = (
            f'{{"type":"send","id":{number},"chat":"{CHAT}","ref":"{number}","body":"{body}"}}'
        )
        self.transport.write(wire.client_frame(payload.encode()))

    def data_received(self, data: bytes) -> None:
        if not self.is_counting:
            super().data_received(data)
            return
        # A marker cut by the end of a read is whole with the next one, and none is counted twice.
        joined = self._tail + data
        self.heard += joined.count(_EVENT)
        self._tail = joined[1 - len(_EVENT) :]
        if self.is_watched:
            super().data_received(data)

    def _take_text(self, frame: dict[str, Any]) -> None:
        if frame["type"] == "ack":
            return
        is_event = frame["type"] == "event"
        if not is_event or frame["seq"]:  # 0: of a large chat, in no inbox
            super()._take_text(frame)
        if is_event and frame["kind"] == "message":
            cs = frame["cs"]
            if cs != self._cs + 1:
                self.tally.note("order", f"{self.user}: place {cs} after {self._cs}")
            self._cs = cs
            message = frame["message"]
            if self.due_of:
                due = self.due_of[message["sender"], message["ref"]]
                self.latencies.append(perf_counter() - due)
            if message["sender"] == self.user and self.sent < self.limit:
                self.send_next()


class Listener(Connection):
    """A socket of the bare loop: counts frames by their size, which is always the same."""

    def __init__(self, name: str, tally: Tally, frame_bytes: int) -> None:
        super().__init__(name, tally)
        self.received_bytes = 0
        self.frame_bytes = frame_bytes
        self.frame = b""
        self.is_sender = False
        self.is_sending = False
        self._answered = 0

    def read_frames(self, data: bytes) -> int:
        self.received_bytes += len(data)
        if self.is_sender and self.is_sending:
            # As many senders as in the group: each sends again when its turn has come back.
            turns = self.heard // self.share
            if turns > self._answered:
                self._answered = turns
                self.transport.write(self.frame)
        return len(data)

    share = 1

    @property
    def heard(self) -> int:
        """How many frames came."""
        return self.received_bytes // self.frame_bytes


@click.command(help=(__doc__ or "").replace("\n\n", "\n\n\b\n", 1))
@click.option("--members", default=500, show_default=True)
@click.option("--senders", default=16, show_default=True, help="Messages under way.")
@click.option("--seconds", default=5.0, show_default=True)
@click.option("--warmup", default=1.0, show_default=True)
@click.option("--runs", default=3, show_default=True, help="Medians are taken over the runs.")
@click.option("--large/--inboxes", default=False, help="The large-chat path, without inboxes.")
@click.option("--server-core", default=0, show_default=True)
@click.option("--load-core", default=1, show_default=True)
@click.option("--calm", default=0.0, help="Wait so many seconds for other work to end.")
@click.option("--profile", type=Path, help="Py-spy profile of the gateway.")
@click.option("--out", type=Path, help="Write all figures to this file.")
def main(**options: Any) -> None:
    """Run the benchmark."""
    os.sched_setaffinity(0, {options["load_core"]})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65_536)), hard))
    runs: list[dict[str, Any]] = []
    for number in range(options["runs"]):
        probe.wait_for_calm(options["calm"])
        with tempfile.TemporaryDirectory(prefix="chatserver-load-") as folder:
            runs.append(uvloop.run(_run(options, Path(folder))))
        click.echo(f"run {number + 1}: {_line(runs[-1])}", err=True)
    medians = {name: _median(runs, name) for name in ("group", "bare", "bare_joined")}
    result = {
        "options": {k: str(v) if isinstance(v, Path) else v for k, v in options.items()},
        "machine": probe.machine(),
        "deliveries_per_second": medians["group"],
        "bare_per_second": medians["bare"],
        "bare_joined_per_second": medians["bare_joined"],
        "p50_ms_at_half": statistics.median(r["open"]["delivered_ms"]["p50"] for r in runs),
        "p99_ms_at_half": statistics.median(r["open"]["delivered_ms"]["p99"] for r in runs),
        "share_of_bare": round(medians["group"] / medians["bare"], 3),
        "share_of_bare_joined": round(medians["group"] / medians["bare_joined"], 3),
        "runs": runs,
    }
    if options["out"] is not None:
        options["out"].write_text(json.dumps(result, indent=2) + "\n")
    for name, value in result.items():
        if not isinstance(value, (dict, list)):
            click.echo(f"{name:28} {value}")
    sys.exit(1 if any(run["violations"] for run in runs) else 0)


def _median(runs: list[dict[str, Any]], name: str) -> float:
    return statistics.median(run[name]["per_second"] for run in runs)


def _line(run: dict[str, Any]) -> str:
    group, bare, joined = run["group"], run["bare"], run["bare_joined"]
    cpu, half = group["cpu_us_per_message"], run["open"]["delivered_ms"]
    return (
        f"{group['per_second']} deliveries/s (gateway {cpu['gateway']}, redis {cpu['redis']} us "
        f"each), at half of it p50 {half['p50']} p99 {half['p99']} ms, "
        f"bare loop {bare['per_second']}, joined {joined['per_second']}, others on the core "
        f"{group['server_core_others_share']}, {run['violations']}"
    )


async def _run(options: dict[str, Any], folder: Path) -> dict[str, Any]:
    placement = stack.Options(options["server_core"], options["load_core"], "everysec", False)
    tally = Tally()
    result: dict[str, Any] = {}
    with contextlib.ExitStack() as exits:
        running = exits.enter_context(stack.chat_stack(placement, folder))
        cores = Cores(placement.server_core, placement.load_core, running.pids())
        names = [f"m{n:05}" for n in range(options["members"])]
        await _open_group(
            running.env["CHAT_REDIS_URL"], [UserId(name) for name in names], options["large"]
        )
        members = await open_sessions(running, names, tally, Member)
        gc.collect()
        gc.freeze()
        gc.disable()  # a collection would show as a pause of the server
        try:
            result["group"] = await _measure_group(options, members, cores, tally)
            rate = result["group"]["per_second"] / len(members) / 2
            result["open"] = await _measure_latency(options, members, cores, tally, rate)
        finally:
            gc.enable()
        for member in members:
            member.close()
    for name, arguments in (("bare", []), ("bare_joined", ["--joined"])):
        result[name] = await _measure_bare(options, placement, folder / name, tally, arguments)
    result["violations"] = dict(tally.counts)
    result["examples"] = tally.examples[:20]
    return result


async def _open_group(redis_url: str, users: list[UserId], is_large: bool) -> None:
    """Put the group into the hot tier: what is measured begins there."""
    async with open_hot(config.Redis(url=redis_url)) as hot:
        members = dict.fromkeys(users, ("member", 1))
        await HotChatLoader(hot).open_chat(
            CHAT, "group", "load", 1, members, (0, 0), [], large=1 if is_large else 0
        )
        if is_large:
            for user in users:
                await hot.call("HSET", hot.keys.large(user), CHAT, "0:0")


async def _measure_group(
    options: dict[str, Any], members: list[Member], cores: Cores, tally: Tally
) -> dict[str, Any]:
    senders = members[: options["senders"]]
    for number, member in enumerate(members):
        member.is_counting = True
        member.is_watched = number % WATCHED_SHARE == 0 or number < len(senders)
    for sender in senders:
        sender.limit = 10**9
        sender.send_next()
    await asyncio.sleep(options["warmup"])
    profiler = await _start_profile(options, cores.pids["gateway"])
    before, first, begin = cores.snapshot(), _heard(members), perf_counter()
    await asyncio.sleep(options["seconds"])
    after, total, elapsed = cores.snapshot(), _heard(members) - first, perf_counter() - begin
    if profiler is not None:
        await profiler.wait()
    for sender in senders:
        sender.limit = 0
    await _drain(members, senders, tally)
    return {
        "messages_per_second": round(total / elapsed / len(members)),
        "per_second": round(total / elapsed),
        **spent(before, after, elapsed, total),
    }


async def _drain(members: list[Member], senders: list[Member], tally: Tally) -> None:
    """Wait until everybody has heard all that was sent; report who has not."""
    sent = sum(sender.sent for sender in senders)
    until = perf_counter() + DRAIN_S
    while perf_counter() < until and any(member.heard < sent for member in members):
        await asyncio.sleep(0.05)
    for member in members:
        member.is_counting = False
        if member.heard != sent:
            tally.note("lost" if member.heard < sent else "duplicate", f"{member.user}: {sent}")


async def _measure_latency(
    options: dict[str, Any], members: list[Member], cores: Cores, tally: Tally, rate: float
) -> dict[str, Any]:
    """Send at a rate that does not follow the server; a latency runs from when one was due."""
    senders = members[: options["senders"]]
    seconds = options["warmup"] + options["seconds"]
    due, order = schedule(rate, seconds, len(senders), seed=1)
    begin = perf_counter() + 0.1
    due_of: dict[tuple[str, str], float] = {}
    planned = {sender.user: FIRST_NUMBER + sender.sent for sender in senders}
    for at, index in zip(due, order, strict=True):
        user = senders[index].user
        due_of[user, str(planned[user])] = begin + at
        planned[user] += 1
    for member in members:
        member.is_counting, member.due_of = True, due_of
    lateness = array("d")
    pacer = Pacer(
        due,
        begin,
        lambda index, _: senders[order[index]].send_next(),
        on_late=lateness.append,
    )
    await asyncio.sleep(begin - perf_counter() + options["warmup"])
    for member in members:
        member.latencies.clear()
    before, first, at_begin = cores.snapshot(), _heard(members), perf_counter()
    await pacer.finished
    elapsed, total = perf_counter() - at_begin, _heard(members) - first
    after = cores.snapshot()
    await _drain(members, senders, tally)
    late = [s for s, d in zip(lateness, due, strict=True) if d >= options["warmup"]]
    figures = {
        "messages_per_second": round(rate, 1),
        "delivered_ms": percentiles_ms([s for m in members for s in m.latencies]),
        "sent_late_ms": percentiles_ms(late),
        **spent(before, after, elapsed, total),
    }
    for member in members:
        member.due_of = {}
    return figures


async def _start_profile(options: dict[str, Any], pid: int) -> asyncio.subprocess.Process | None:
    if options["profile"] is None:
        return None
    command = ["py-spy", "record", "--pid", str(pid), "--format", "raw", "--rate", "500"]
    command += ["--duration", str(int(options["seconds"])), "--output", str(options["profile"])]
    return await asyncio.create_subprocess_exec(*command)


def _heard(members: list[Member]) -> int:
    return sum(member.heard for member in members)


async def _measure_bare(
    options: dict[str, Any],
    placement: stack.Options,
    folder: Path,
    tally: Tally,
    arguments: list[str],
) -> dict[str, Any]:
    port = stack.free_port()
    module = ["tests.load.servers.fan_server", "--port", str(port), *arguments]
    payload = b"x" * 344  # about an event of the group
    frame = wire.client_frame(payload)
    with stack.running(
        stack.module_launch("bare", module, port, folder), placement.server_core
    ) as server:
        assert server.process is not None
        pids = {"echo": server.process.pid, "load": os.getpid()}
        cores = Cores(placement.server_core, placement.load_core, pids)
        listeners = [Listener(str(n), tally, len(frame) - 4) for n in range(options["members"])]
        for listener in listeners:
            await listener.connect(port)
        for listener in listeners[: options["senders"]]:
            listener.frame, listener.is_sender, listener.is_sending = frame, True, True
            listener.share = options["senders"]
            listener.transport.write(frame)
        await asyncio.sleep(options["warmup"])
        before, begin = cores.snapshot(), perf_counter()
        first = sum(listener.received_bytes for listener in listeners)
        await asyncio.sleep(options["seconds"])
        total = sum(listener.received_bytes for listener in listeners) - first
        after, elapsed = cores.snapshot(), perf_counter() - begin
        for listener in listeners:
            listener.is_sending = False
            listener.close()
    count = total // (len(frame) - 4)
    return {"per_second": round(count / elapsed), **spent(before, after, elapsed, count)}


if __name__ == "__main__":
    main()
