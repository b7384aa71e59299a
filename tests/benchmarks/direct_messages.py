"""Direct messages: maximum rate, latency at half that rate, and CPU cost.

    python -m tests.benchmarks.direct_messages [--pairs 200] [--window 8] [--frame-bytes 200]
        [--seconds 5] [--warmup 2] [--runs 3] [--out F.json]

One gateway process and Redis share one core; the load generator has another. Each run starts new
servers and measures, in this order:

1. the highest rate of an open loop (messages sent one by one, at random times)
2. latencies at half that rate, or at `--open-rate`
3. the closed-loop rate with `--window` messages in flight per pair

Every message is checked for loss, duplication and order.
"""

from __future__ import annotations

import asyncio
import json
import sys
from array import array
from time import perf_counter

import click

from chatserver.dev.ports import is_port_free
from chatserver.dev.servers import Fsync, Launch
from chatserver.loadtest import wire
from chatserver.loadtest.arrival_schedule import Pacer
from chatserver.loadtest.delivery_checker import Findings
from tests.benchmarks.support.checked_sessions import FIRST_NUMBER, Session, open_sessions
from tests.benchmarks.support.harness import (
    Bench,
    benchmark,
    disable_garbage_collection,
    timing,
)
from tests.benchmarks.support.measurements import (
    SERVER_CORE,
    CpuMeter,
    Figures,
    build_schedule,
    read_redis_commands,
    summarize_ms,
)
from tests.benchmarks.support.pinned_stack import PinnedStack
from tests.support.servers.processes import free_port, redis_client
from tests.support.stack import Stack

# The search starts at SEARCH_FROM times the closed-loop rate and rises by the factor SEARCH_STEP.
SEARCH_FROM, SEARCH_STEP = 0.6, 1.06
SEARCH_ATTEMPTS = 3
# messages in flight per pair; the server refuses more than `sends_in_flight_max`
IN_FLIGHT_MAX = 60
DRAIN_S = 15.0
_OPENED_AT_ONCE = 32


def build_body(chat: str, frame_bytes: int) -> str:
    """Return a body that makes the whole JSON of a `send` exactly `frame_bytes` long."""
    room = frame_bytes - len(_send_json(chat, str(FIRST_NUMBER), ""))
    if room < 1:
        raise click.UsageError(f"--frame-bytes: at least {frame_bytes - room + 1}")
    words = "the quick brown fox jumps over the lazy dog "
    return (words * (room // len(words) + 1))[:room]


def _send_json(chat: str, number: str, body: str) -> bytes:
    return (
        f'{{"type":"send","id":{number},"chat":"{chat}","ref":"{number}","body":{json.dumps(body)}}}'
    ).encode()


class Pair:
    """Sends numbered messages from one session of a pair and waits for them at the other.

    A message is done when the sender has its ack and the receiver has its event. In a closed loop,
    `window` messages are in flight: when a message is done, the next one is sent.
    """

    def __init__(self, sender: Session, receiver: Session) -> None:
        self.sender, self.receiver = sender, receiver
        self.sent = 0
        self.window = 0
        # scheduled times of the messages sent since `start_recording`
        self.intended: list[float] = []
        self._first = 0  # messages sent before `start_recording`
        self._frame_template = b""

    async def open_chat(self, frame_bytes: int) -> None:
        """Open the chat and prepare its `send` frame; messages differ only in their number."""
        response = await self.sender.request("open_direct", user=self.receiver.user)
        chat = response["chat"]["chat"]
        body = build_body(chat, frame_bytes)
        # The WebSocket header has the payload length: copy it from a frame of the final length.
        sized = wire.encode_client_frame(_send_json(chat, str(FIRST_NUMBER), body))
        head = sized[: len(sized) - frame_bytes]
        template = head + _send_json(chat, "{number}", body)
        self._frame_template = template.replace(b"%", b"%%").replace(b"{number}", b"%d")
        for session in (self.sender, self.receiver):
            session.expect(chat, self.sender.user, body)

    @property
    def done(self) -> int:
        return min(self.sender.acked, self.receiver.events_received)

    def list_missing(self) -> dict[str, int]:
        """Return how many acks and events of the sent messages have not arrived."""
        arrived = {
            "ack": self.sender.acked,
            "event at the receiver": self.receiver.events_received,
            "event at the sender": self.sender.events_received,
        }
        return {name: self.sent - count for name, count in arrived.items() if count != self.sent}

    def start_window(self, window: int) -> None:
        self.window = window
        self.sender.on_progress = self.receiver.on_progress = self.refill
        self.refill()

    def refill(self) -> None:
        """Send messages, in one write, until `window` of them are in flight."""
        acked, delivered = self.sender.acked, self.receiver.events_received
        self._send_up_to((acked if acked < delivered else delivered) + self.window)

    def _send_up_to(self, upto: int) -> None:
        """Send messages, in one write, until `upto` have been sent."""
        sent = self.sent
        if upto <= sent:
            return
        form = self._frame_template
        numbers = range(FIRST_NUMBER + sent, FIRST_NUMBER + upto)
        self.sender.transport.write(b"".join([form % (n, n) for n in numbers]))
        self.sent = upto

    def start_recording(self) -> None:
        """Start recording the times of all acks and events."""
        self.intended, self._first = [], self.sent
        self.sender.on_progress = self._send_due
        for session in (self.sender, self.receiver):
            session.ack_at, session.event_at = [], []
            session.is_recording = True

    def send_one(self, intended: float) -> None:
        """Send a message now or, if `IN_FLIGHT_MAX` are in flight, after an ack.

        `intended`: the scheduled time.
        """
        self.intended.append(intended)
        self._send_due()

    def _send_due(self) -> None:
        due = self._first + len(self.intended)
        self._send_up_to(min(due, self.sender.acked + IN_FLIGHT_MAX))

    def stop(self) -> None:
        """Send no more messages."""
        for session in (self.sender, self.receiver):
            session.on_progress, session.is_recording = None, False


async def open_pairs(stack: Stack, count: int, frame_bytes: int, findings: Findings) -> list[Pair]:
    """Return pairs of users, each with an open direct chat without messages."""
    senders = await open_sessions(stack, [f"s{n:05}" for n in range(count)], findings, Session)
    receivers = await open_sessions(stack, [f"r{n:05}" for n in range(count)], findings, Session)
    slots = asyncio.Semaphore(_OPENED_AT_ONCE)

    async def open_chat(pair: Pair) -> None:
        async with slots:
            await pair.open_chat(frame_bytes)

    pairs = [Pair(s, r) for s, r in zip(senders, receivers, strict=True)]
    await asyncio.gather(*map(open_chat, pairs))
    # Opening a chat sends an event to both users. The events arrive before the pong.
    await asyncio.gather(*(s.ping() for s in (*senders, *receivers)))
    return pairs


class Loops:
    """Closed and open loops of all pairs."""

    def __init__(
        self, pairs: list[Pair], cpu: CpuMeter, findings: Findings, warmup_s: float, seconds: float
    ) -> None:
        self._pairs, self._cpu, self._findings = pairs, cpu, findings
        self._warmup_s, self._seconds = warmup_s, seconds

    def count_done(self) -> int:
        return sum(pair.done for pair in self._pairs)

    async def run_closed(self, window: int, share: float = 1.0) -> Figures:
        """Measure the rate of messages acked and delivered, with `window` in flight per pair.

        `share`: of the durations.
        """
        for pair in self._pairs:
            pair.start_window(window)
        warmup_s, seconds = self._warmup_s * share, self._seconds * share
        figures = await self._cpu.measure(self.count_done, warmup_s, seconds)
        for pair in self._pairs:
            pair.stop()
        await self._drain()
        return {"window": window, **figures}

    async def run_open(self, rate: float, seed: int, share: float = 1.0) -> Figures:
        """Measure latencies at a rate that is independent of the server's speed.

        Messages are scheduled as a Poisson process before the first one is sent. Latency counts
        from the scheduled time, so it includes delays of the server and of the generator.
        """
        pairs, warmup_s, seconds = self._pairs, self._warmup_s * share, self._seconds * share
        due, order = build_schedule(rate, warmup_s + seconds, len(pairs), seed)
        for pair in pairs:
            pair.start_recording()
        begin = perf_counter() + 0.1
        lateness = array("d")
        pacer = Pacer(
            due,
            begin,
            lambda index, time_s: pairs[order[index]].send_one(time_s),
            on_late=lateness.append,
        )
        await asyncio.sleep(0.1 + warmup_s)
        end = self._cpu.start(self.count_done)
        await pacer.finished
        figures = end()
        await self._drain()
        acked, delivered = list[float](), list[float]()
        for pair in pairs:
            for times, target in ((pair.sender.ack_at, acked), (pair.receiver.event_at, delivered)):
                target += [
                    time_s - intended
                    for intended, time_s in zip(pair.intended, times, strict=False)
                    if intended >= begin + warmup_s
                ]
        late = [s for s, d in zip(lateness, due, strict=True) if d >= warmup_s]
        return {
            "asked_per_second": round(rate),
            "ack": summarize_ms(acked),
            "delivered": summarize_ms(delivered),
            "sent_late": summarize_ms(late),  # delay caused by the generator
            **figures,
        }

    async def find_open_maximum(self, p99_ms: float, seed: int) -> int:
        """Return the highest rate of an open loop with a p99 ack latency of at most `p99_ms`.

        The search starts below the closed-loop rate with one message in flight per pair, and rises
        in small steps. It ends at the first rate that fails `SEARCH_ATTEMPTS` times, so that one
        pause of the machine does not end it. It returns 0 if no rate succeeds.
        """
        rate: float = SEARCH_FROM * (await self.run_closed(1, 1 / 4))["per_second"]
        sustained, attempts = 0.0, 0
        while attempts < SEARCH_ATTEMPTS:
            measured = await self.run_open(rate, seed + attempts, 1 / 4)
            if measured["ack"].get("p99_ms", p99_ms + 1) > p99_ms:
                attempts += 1
            else:
                sustained, rate, attempts = rate, rate * SEARCH_STEP, 0
        return round(sustained)

    async def _drain(self) -> None:
        """Wait up to `DRAIN_S` for all sent messages to arrive; record missing and duplicates."""
        until = perf_counter() + DRAIN_S
        while perf_counter() < until and any(pair.list_missing() for pair in self._pairs):
            await asyncio.sleep(0.02)
        for pair in self._pairs:
            for what, count in pair.list_missing().items():
                text = f"{pair.sender.user}: {count} of {pair.sent}: no {what}"
                self._findings.add("lost", text)
            pair.stop()
        # Once the pong arrives, all earlier frames have been read, duplicates included.
        await asyncio.gather(*(s.ping() for p in self._pairs for s in (p.sender, p.receiver)))


@benchmark(
    click.option("--pairs", default=200, show_default=True, help="Direct chats."),
    click.option("--window", default=8, show_default=True, help="Messages in flight per chat."),
    click.option("--frame-bytes", default=200, show_default=True, help="Of a `send`, as JSON."),
    click.option("--open-rate", type=float, help="Messages per second; default: half the maximum."),
    click.option("--p99-ms", default=30.0, show_default=True, help="Of a sustained rate."),
    click.option(
        "--fsync",
        type=click.Choice(["no", "everysec", "always"]),
        default="everysec",
        show_default=True,
        help="`appendfsync` of Redis; `no`: no append-only file.",
    ),
    click.option(
        "--stub",
        type=click.Choice(["correct", "lose", "repeat", "swap"]),
        help="Measure a stub server, to test the benchmark itself; with a fault or without.",
    ),
    *timing,
    runs=3,
)
async def main(
    bench: Bench,
    pairs: int,
    window: int,
    frame_bytes: int,
    open_rate: float | None,
    p99_ms: float,
    fsync: Fsync,
    stub: str | None,
    seconds: float,
    warmup_s: float,
) -> Figures:
    if stub is None:
        pinned = PinnedStack(bench, fsync=fsync)
        pinned.start_gateway()
        stack, cpu = pinned.stack, pinned.create_meter()
    else:
        stack = Stack(bench.folder, "no", {})
        bench.use_load_core()
        stack.gateways.append(bench.start(build_stub_launch(bench, stub), SERVER_CORE))
        cpu = CpuMeter({"gateway": stack.gateways[0]})
    opened = await open_pairs(stack, pairs, frame_bytes, bench.findings)
    loops = Loops(opened, cpu, bench.findings, warmup_s, seconds)
    with disable_garbage_collection():
        maximum = await loops.find_open_maximum(p99_ms, bench.number)
        rate = open_rate or max(1.0, maximum / 2)
        figures = {
            "open_maximum_per_second": maximum,
            "open": await loops.run_open(rate, bench.number),
        }
        if stub is None:
            with redis_client(stack.redis_url) as redis:
                redis.config_resetstat()
        figures["closed"] = await loops.run_closed(window)
        if stub is None:
            figures["redis_us_per_call"] = {
                name: stats["usec_per_call"]
                for name, stats in read_redis_commands(stack.redis_url).items()
            }
    for pair in opened:
        pair.sender.close()
        pair.receiver.close()
    return figures


def build_stub_launch(bench: Bench, fault: str) -> Launch:
    port = free_port()
    argv = [sys.executable, "-m", "chatserver.loadtest.stub_server", "--port", str(port)]
    argv += [] if fault == "correct" else ["--fault", fault]
    return Launch("stub", argv, port, bench.folder, lambda: not is_port_free(port))


if __name__ == "__main__":
    main()
