"""Pairs of users that send direct messages, in a closed loop (rate) or an open loop (latency)."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from chatserver.loadtest import wire
from chatserver.loadtest.arrival_schedule import Pacer, build_schedule
from chatserver.loadtest.bench.cpu_usage import Cores, compute_cpu_costs, measure_rate
from chatserver.loadtest.bench.server_stack import Stack
from chatserver.loadtest.bench.session import (
    FIRST_NUMBER,
    RunFindings,
    Session,
    open_sessions,
)

SUSTAINED_P99_MS = 30.0
# The search starts at SEARCH_FROM times the closed-loop rate and rises by the factor SEARCH_STEP.
SEARCH_FROM, SEARCH_STEP = 0.6, 1.06
SEARCH_ATTEMPTS = 3
# messages in flight per pair; the server refuses more than `sends_in_flight_max`
IN_FLIGHT_MAX = 60
DRAIN_S = 15.0
_OPENED_AT_ONCE = 32


def build_body(chat: str, frame_bytes: int) -> str:
    """Return a body that makes the whole JSON of a `send` exactly `frame_bytes` long.

    Raises:
        ValueError: `frame_bytes` is too small for a frame with a body.
    """
    empty = _send_json(chat, str(FIRST_NUMBER), str(FIRST_NUMBER), "")
    room = frame_bytes - len(empty)
    if room < 1:
        raise ValueError(f"a send frame takes at least {len(empty) + 1} bytes")
    words = "the quick brown fox jumps over the lazy dog "
    return (words * (room // len(words) + 1))[:room]


def _send_json(chat: str, number: str, ref: str, body: str) -> bytes:
    return (
        f'{{"type":"send","id":{number},"chat":"{chat}","ref":"{ref}","body":{json.dumps(body)}}}'
    ).encode()


class Pair:
    """Sends numbered messages from one session of a pair and waits for them at the other.

    A message is done when the sender has its ack and the receiver has its event. In a closed loop,
    `window` messages are in flight: when a message is done, the next one is sent.
    """

    def __init__(self, sender: Session, receiver: Session, findings: RunFindings) -> None:
        self.sender = sender
        self.receiver = receiver
        self.sent = 0
        self._first = 0  # messages sent before `start_recording`
        self.window = 0
        # scheduled times of the messages sent since `start_recording`
        self.intended: list[float] = []
        self._findings = findings
        self._frame_template = b""

    def set_chat(self, chat: str, frame_bytes: int) -> None:
        """Set the chat and prepare its `send` frame; messages differ only in their number."""
        body = build_body(chat, frame_bytes)
        payload = _send_json(chat, "{number}", "{number}", body)
        # The WebSocket header contains the payload length. Copy it from a frame of the final
        # length.
        sized = wire.encode_client_frame(
            _send_json(chat, str(FIRST_NUMBER), str(FIRST_NUMBER), body)
        )
        head = sized[: len(sized) - frame_bytes]
        self._frame_template = (head + payload).replace(b"%", b"%%").replace(b"{number}", b"%d")
        self.sender.expect(chat, self.sender.user, body)
        self.receiver.expect(chat, self.sender.user, body)

    @property
    def done(self) -> int:
        return min(self.sender.acked, self.receiver.events_received)

    @property
    def is_quiet(self) -> bool:
        """True if all sent messages are acked, and both sessions have received all of them."""
        return (
            self.sent
            == self.sender.acked
            == self.receiver.events_received
            == self.sender.events_received
        )

    def start_window(self, window: int) -> None:
        self.window = window
        self.sender.on_progress = self.receiver.on_progress = self.refill
        self.refill()

    def stop_window(self) -> None:
        self.sender.on_progress = self.receiver.on_progress = None

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
        if upto == sent + 1:
            number = FIRST_NUMBER + sent
            self.sender.transport.write(form % (number, number))
        else:
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

    def stop_recording(self) -> None:
        self.sender.on_progress = None
        self.sender.is_recording = self.receiver.is_recording = False

    def send_one(self, intended: float) -> None:
        """Send a message now or, if `IN_FLIGHT_MAX` are in flight, after an ack.

        `intended`: the scheduled time.
        """
        self.intended.append(intended)
        self._send_due()

    def _send_due(self) -> None:
        due = self._first + len(self.intended)
        self._send_up_to(min(due, self.sender.acked + IN_FLIGHT_MAX))

    def report_missing(self) -> None:
        for what, count in (
            ("ack", self.sender.acked),
            ("event at the receiver", self.receiver.events_received),
            ("event at the sender", self.sender.events_received),
        ):
            if count < self.sent:
                text = f"{self.sender.user}: {self.sent - count} of {self.sent}: no {what}"
                self._findings.add("lost", text)

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


async def open_pairs(
    stack: Stack, count: int, frame_bytes: int, findings: RunFindings
) -> list[Pair]:
    """Return pairs of users, each with an open direct chat without messages."""
    senders = await open_sessions(stack, [f"s{n:05}" for n in range(count)], findings, Session)
    # With N gateways, one pair in N has both users on the same gateway.
    turn, names = len(stack.gateways), [f"r{n:05}" for n in range(count)]
    receivers = await open_sessions(stack, names, findings, Session, turn)
    slots = asyncio.Semaphore(_OPENED_AT_ONCE)

    async def open_chat(pair: Pair) -> None:
        async with slots:
            response = await pair.sender.request("open_direct", user=pair.receiver.user)
            if response["type"] != "ok":
                raise RuntimeError(f"open_direct: {response}")
            pair.set_chat(response["chat"]["chat"], frame_bytes)

    pairs = [Pair(s, r, findings) for s, r in zip(senders, receivers, strict=True)]
    await asyncio.gather(*map(open_chat, pairs))
    # Opening a chat sends an event to both users. The events arrive before the pong.
    await asyncio.gather(*(s.ping() for s in (*senders, *receivers)))
    return pairs


async def run_closed_loop(
    pairs: Sequence[Pair], cores: Cores, window: int, warmup_s: float, seconds: float
) -> dict[str, Any]:
    """Measure the rate of messages acked and delivered, with `window` in flight per pair."""
    for pair in pairs:
        pair.start_window(window)
    figures = await measure_rate(lambda: sum(p.done for p in pairs), cores, warmup_s, seconds)
    for pair in pairs:
        pair.stop_window()
    await drain(pairs)
    return {"window": window, **figures}


async def run_open_loop(
    pairs: Sequence[Pair], cores: Cores, rate: float, warmup_s: float, seconds: float, seed: int
) -> dict[str, Any]:
    """Measure latencies at a rate that is independent of the server's speed.

    Messages are scheduled as a Poisson process before the first one is sent. Latency counts from
    the scheduled time, so it includes delays of the server and of the generator.
    """
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
    measured_from = begin + warmup_s
    await asyncio.sleep(0.1 + warmup_s)
    before, started, first = cores.read_cpu_times(), perf_counter(), sum(p.done for p in pairs)
    await pacer.finished
    after, elapsed = cores.read_cpu_times(), perf_counter() - started
    count = sum(p.done for p in pairs) - first
    await drain(pairs)
    for pair in pairs:
        pair.stop_recording()
    acked: list[float] = []
    delivered: list[float] = []
    for pair in pairs:
        for times, target in ((pair.sender.ack_at, acked), (pair.receiver.event_at, delivered)):
            target.extend(
                time_s - intended
                for intended, time_s in zip(pair.intended, times, strict=False)
                if intended >= measured_from
            )
    costs = compute_cpu_costs(before, after, elapsed, count)
    late = [s for s, d in zip(lateness, due, strict=True) if d >= warmup_s]
    return {
        "asked_per_second": round(rate),
        "seconds": round(elapsed, 3),
        "messages": len(acked),
        "ack_ms": compute_percentiles_ms(acked),
        "delivered_ms": compute_percentiles_ms(delivered),
        "sent_late_ms": compute_percentiles_ms(late),  # delay caused by the generator
        **costs,
    }


async def find_open_maximum(
    pairs: Sequence[Pair], cores: Cores, warmup_s: float, seconds: float, seed: int
) -> int:
    """Return the highest sustained rate of an open loop; 0 if none.

    A rate is sustained if the p99 ack latency is at most `SUSTAINED_P99_MS`. The search
    starts below the closed-loop rate with one message in flight per pair, and rises in small steps.
    It ends at the first rate that fails `SEARCH_ATTEMPTS` times, so that one pause of the machine
    does not end it.
    """
    closed = await run_closed_loop(pairs, cores, 1, warmup_s, seconds)
    rate: float = closed["per_second"] * SEARCH_FROM
    sustained, attempts = 0.0, 0
    while attempts < SEARCH_ATTEMPTS:
        measured = await run_open_loop(pairs, cores, rate, warmup_s, seconds, seed + attempts)
        p99_ms = measured["ack_ms"]["p99"]
        if p99_ms is None or p99_ms > SUSTAINED_P99_MS:
            attempts += 1
        else:
            sustained, rate, attempts = rate, rate * SEARCH_STEP, 0
    return round(sustained)


async def drain(pairs: Sequence[Pair]) -> None:
    """Wait up to `DRAIN_S` for all sent messages to arrive; report missing and duplicate ones."""
    until = perf_counter() + DRAIN_S
    while perf_counter() < until:
        if all(pair.is_quiet for pair in pairs):
            break
        await asyncio.sleep(0.02)
    for pair in pairs:
        pair.report_missing()
    # Once the pong arrives, all earlier frames from the server have been read, duplicates included.
    await asyncio.gather(*(s.ping() for p in pairs for s in (p.sender, p.receiver)))


def compute_percentiles_ms(values: Sequence[float]) -> dict[str, float | None]:
    """Return p50, p90, p99, p99.9 and the maximum, in milliseconds (nearest rank)."""
    ranked = sorted(values)
    if not ranked:  # all sends were refused
        return dict.fromkeys(("p50", "p90", "p99", "p999", "max"))

    def at(share: float) -> float:
        index = min(len(ranked) - 1, max(0, -(-int(len(ranked) * share * 1000) // 1000) - 1))
        return round(ranked[index] * 1000, 3)

    return {
        "p50": at(0.5),
        "p90": at(0.9),
        "p99": at(0.99),
        "p999": at(0.999),
        "max": round(ranked[-1] * 1000, 3),
    }
