"""One busy group: deliveries per second, CPU per delivery, and latency at half that rate.

One gateway process and Redis share one core; the load generator has another. All members are
online. Each of `--senders` members has one message in flight: it sends the next when it receives
the event for its own message. Each run starts new servers and measures the group in a closed loop,
then in an open loop at half that rate. Afterward, a minimal fan-out server is measured on the same
core. It writes messages of about the same size to the same number of sockets, and is measured
twice: with one write per message and socket, then with one write per socket for all messages from
one read. All senders and one member in sixteen check every event and its latency; the other members
only count events. Slow results never fail the command: exit code 1 means that a message was lost or
wrong.
"""

from __future__ import annotations

import asyncio
import json
import os
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
from chatserver.hot.chats.hot_chat_writer import HotChatWriter
from chatserver.hot.redis.factory import open_hot
from chatserver.loadtest import wire
from chatserver.loadtest.arrival_schedule import Pacer, build_schedule
from chatserver.loadtest.bench import server_stack
from chatserver.loadtest.bench.cpu_usage import Cores, compute_cpu_costs, wait_for_idle_cores
from chatserver.loadtest.bench.direct_pairs import compute_percentiles_ms
from chatserver.loadtest.bench.run_options import (
    disable_garbage_collection,
    prepare_process,
    profile,
    run_options,
)
from chatserver.loadtest.bench.session import (
    FIRST_NUMBER,
    Connection,
    RunFindings,
    Session,
    open_sessions,
)
from chatserver.loadtest.machine import describe_machine

CHAT = ChatId("g-load")
CHECKED_SHARE = 16
DRAIN_S = 20
_EVENT = b'{"type":"event"'


class Member(Session):
    """A member. `received` counts events; if `is_checking` is True, each event is also decoded."""

    def __init__(self, user: str, findings: RunFindings) -> None:
        super().__init__(user, findings)
        self.received = 0
        self.is_checking = False
        self.is_counting = False
        self.sent = 0
        self.limit = 0
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
            if message["sender"] == self.user and self.sent < self.limit:
                self.send_next()


class Listener(Connection):
    """A connection to the fan-out server: counts frames, which all have the same size."""

    def __init__(self, name: str, findings: RunFindings, frame_bytes: int) -> None:
        super().__init__(name, findings)
        self.received_bytes = 0
        self.frame_bytes = frame_bytes
        self.frame = b""
        self.is_sending = False
        self.senders = 1
        self._rounds = 0

    def read_frames(self, data: bytes) -> int:
        self.received_bytes += len(data)
        if self.is_sending:
            # A sender has one message in flight. It sends the next after receiving one message from
            # each sender.
            rounds = self.received_bytes // self.frame_bytes // self.senders
            if rounds > self._rounds:
                self._rounds = rounds
                self.transport.write(self.frame)
        return len(data)


@click.command(help=(__doc__ or "").replace("\n\n", "\n\n\b\n", 1))
@click.option("--members", default=500, show_default=True, help="Number of members of the group.")
@click.option(
    "--senders",
    default=16,
    show_default=True,
    help="Members that send; each has one message in flight.",
)
@click.option(
    "--large/--inboxes", default=False, help="Measure a large chat, or a chat with inboxes."
)
@run_options
def groups(**options: Any) -> None:
    prepare_process(options["load_core"])
    runs: list[dict[str, Any]] = []
    for number in range(options["runs"]):
        wait_for_idle_cores(options["calm"])
        with tempfile.TemporaryDirectory() as folder:
            runs.append(uvloop.run(_run(options, Path(folder))))
        click.echo(f"run {number + 1}: {_format_line(runs[-1])}", err=True)
    medians = {name: _compute_median(runs, name) for name in ("group", "bare", "bare_joined")}
    result = {
        "options": {k: str(v) if isinstance(v, Path) else v for k, v in options.items()},
        "machine": describe_machine(),
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


def _compute_median(runs: list[dict[str, Any]], name: str) -> float:
    return float(statistics.median(run[name]["per_second"] for run in runs))


def _format_line(run: dict[str, Any]) -> str:
    group, bare, joined = run["group"], run["bare"], run["bare_joined"]
    cpu, half = group["cpu_us_per_message"], run["open"]["delivered_ms"]
    return (
        f"{group['per_second']} deliveries/s (gateway {cpu['gateway']}, redis {cpu['redis']} us "
        f"each), at half of it p50 {half['p50']} p99 {half['p99']} ms, "
        f"bare loop {bare['per_second']}, joined {joined['per_second']}, others on the core "
        f"{group['server_core_others_share']}, {run['violations']}"
    )


async def _run(options: dict[str, Any], folder: Path) -> dict[str, Any]:
    placement = server_stack.Placement(options["server_core"], options["load_core"])
    findings = RunFindings()
    result: dict[str, Any] = {}
    with server_stack.run_chat_stack(placement, folder) as stack:
        cores = Cores(placement.server_core, placement.load_core, stack.get_pids())
        names = [f"m{n:05}" for n in range(options["members"])]
        users = [UserId(name) for name in names]
        await _open_group(stack.env["CHAT_REDIS_URL"], users, options["large"])
        members = await open_sessions(stack, names, findings, Member)
        with disable_garbage_collection():
            result["group"] = await _measure_group(options, members, cores, findings)
            rate = result["group"]["per_second"] / len(members) / 2
            result["open"] = await _measure_latency(options, members, cores, findings, rate)
        for member in members:
            member.close()
    for name, arguments in (("bare", []), ("bare_joined", ["--joined"])):
        result[name] = await _measure_bare(options, placement, folder / name, findings, arguments)
    result["violations"] = findings.count_violations()
    result["examples"] = findings.examples
    return result


async def _open_group(redis_url: str, users: list[UserId], is_large: bool) -> None:
    """Load the group into Redis directly, without creating it in DynamoDB."""
    async with open_hot(config.Redis(url=redis_url)) as hot:
        members = dict.fromkeys(users, ("member", 1))
        await HotChatWriter(hot).open_chat(
            CHAT, "group", "load", 1, members, (0, 0), [], large=1 if is_large else 0
        )
        if is_large:
            for user in users:
                await hot.call("HSET", hot.keys.large(user), CHAT, "0:0")


async def _measure_group(
    options: dict[str, Any], members: list[Member], cores: Cores, findings: RunFindings
) -> dict[str, Any]:
    senders = members[: options["senders"]]
    for number, member in enumerate(members):
        member.is_counting = True
        member.is_checking = number % CHECKED_SHARE == 0 or number < len(senders)
    for sender in senders:
        sender.limit = 10**9
        sender.send_next()
    await asyncio.sleep(options["warmup"])
    async with profile(cores.pids["gateway"], options["seconds"], options["profile"]):
        before, first, begin = cores.read_cpu_times(), _count_received(members), perf_counter()
        await asyncio.sleep(options["seconds"])
        after, total, elapsed = (
            cores.read_cpu_times(),
            _count_received(members) - first,
            perf_counter() - begin,
        )
    for sender in senders:
        sender.limit = 0
    await _drain(members, senders, findings)
    return {
        "messages_per_second": round(total / elapsed / len(members)),
        "per_second": round(total / elapsed),
        **compute_cpu_costs(before, after, elapsed, total),
    }


async def _drain(members: list[Member], senders: list[Member], findings: RunFindings) -> None:
    sent = sum(sender.sent for sender in senders)
    until = perf_counter() + DRAIN_S
    while perf_counter() < until:
        if all(member.received >= sent for member in members):
            break
        await asyncio.sleep(0.05)
    for member in members:
        member.is_counting = False
        if member.received != sent:
            findings.add(
                "lost" if member.received < sent else "duplicate", f"{member.user}: {sent}"
            )


async def _measure_latency(
    options: dict[str, Any], members: list[Member], cores: Cores, findings: RunFindings, rate: float
) -> dict[str, Any]:
    """Send at a fixed `rate`; latency counts from the scheduled time of each message."""
    senders = members[: options["senders"]]
    seconds = options["warmup"] + options["seconds"]
    due, order = build_schedule(rate, seconds, len(senders), seed=1)
    begin = perf_counter() + 0.1
    due_times: dict[tuple[str, str], float] = {}
    planned = {sender.user: FIRST_NUMBER + sender.sent for sender in senders}
    for due_at, index in zip(due, order, strict=True):
        user = senders[index].user
        due_times[user, str(planned[user])] = begin + due_at
        planned[user] += 1
    for member in members:
        member.is_counting, member.due_times = True, due_times
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
    before, first, at_begin = cores.read_cpu_times(), _count_received(members), perf_counter()
    await pacer.finished
    elapsed, total = perf_counter() - at_begin, _count_received(members) - first
    after = cores.read_cpu_times()
    await _drain(members, senders, findings)
    late = [s for s, d in zip(lateness, due, strict=True) if d >= options["warmup"]]
    figures = {
        "messages_per_second": round(rate, 1),
        "delivered_ms": compute_percentiles_ms([s for m in members for s in m.latencies]),
        "sent_late_ms": compute_percentiles_ms(late),
        **compute_cpu_costs(before, after, elapsed, total),
    }
    for member in members:
        member.due_times = {}
    return figures


def _count_received(members: list[Member]) -> int:
    return sum(member.received for member in members)


async def _measure_bare(
    options: dict[str, Any],
    placement: server_stack.Placement,
    folder: Path,
    findings: RunFindings,
    arguments: list[str],
) -> dict[str, Any]:
    port = server_stack.find_free_port()
    module = ["chatserver.loadtest.bench.fanout_server", "--port", str(port), *arguments]
    frame = wire.encode_client_frame(b"x" * 344)  # about the size of a group event
    launch = server_stack.build_launch("bare", module, port, folder)
    with server_stack.run_server(launch, placement.server_core) as server:
        pids = {"echo": server_stack.get_pid(server), "load": os.getpid()}
        cores = Cores(placement.server_core, placement.load_core, pids)
        count = options["members"]
        listeners = [Listener(str(n), findings, len(frame) - 4) for n in range(count)]
        for listener in listeners:
            await listener.connect(port)
        for listener in listeners[: options["senders"]]:
            listener.frame, listener.is_sending = frame, True
            listener.senders = options["senders"]
            listener.transport.write(frame)
        await asyncio.sleep(options["warmup"])
        before, begin = cores.read_cpu_times(), perf_counter()
        first = sum(listener.received_bytes for listener in listeners)
        await asyncio.sleep(options["seconds"])
        total = sum(listener.received_bytes for listener in listeners) - first
        after, elapsed = cores.read_cpu_times(), perf_counter() - begin
        for listener in listeners:
            listener.is_sending = False
            listener.close()
    deliveries = total // (len(frame) - 4)
    costs = compute_cpu_costs(before, after, elapsed, deliveries)
    return {"per_second": round(deliveries / elapsed), **costs}
