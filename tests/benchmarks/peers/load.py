"""Load generator of the comparison: clients of any protocol in one epoll loop.

The messages of a step are scheduled in advance, as a Poisson process, and latency counts from the
scheduled time. Each text contains its message's number between two ``~``. What a server sends is
searched for these numbers instead of being decoded, which costs the same for every protocol.
"""

from __future__ import annotations

import re
import select
import socket
from array import array
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import ClassVar

from chatserver.dev.servers import HOST
from tests.benchmarks.support.measurements import (
    CpuMeter,
    Figures,
    build_schedule,
    summarize_ms,
)

TEXT_BYTES = 100
ROOM = "lobby"
SET_UP_S = 60.0
GRACE_S = 1.0  # for the last messages of a step
DRAIN_S = 10.0
QUIET_S = 0.5  # a server that sends nothing for this long has sent everything
LATE_S_MAX = 0.02  # p99 of the generator's own delay
_SET_UPS_IN_FLIGHT = 32
_SENDS_AT_ONCE = 64  # between two reads
_TAIL_BYTES = 64  # longer than a number or an acknowledgment
_FILLER = (b" the quick brown fox jumps over the lazy dog" * 3)[: TEXT_BYTES - 10]

Script = Iterator[tuple[bytes, bytes]]  # what to send, and the bytes to wait for then


class PeerFailed(Exception):
    """A server could not be started or used, or closed a connection."""


class Client:
    """A user's connection. A subclass is a protocol.

    `acknowledgment` matches an acknowledgment of the server; its group is the message's number.
    """

    acknowledgment: ClassVar[bytes] = b""

    def __init__(self, load: Load, number: int, recipient: str) -> None:
        self.load, self.user, self.recipient = load, f"u{number:04}", recipient
        # Where deliveries to this client are counted; None: it gets no messages of others.
        self.slot: int | None = None
        self.script: Script | None = None
        self.marker = self.received = self._unsent = b""
        self.socket = socket.socket()

    def connect(self) -> None:
        self.socket.connect((HOST, self.load.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)

    def log_in(self) -> Script:
        raise NotImplementedError

    def enter(self) -> Script:
        """Enter the room or open the chat. All users have logged in."""
        return iter(())

    def encode(self, number: int, text: bytes) -> bytes:
        """Return a message to `recipient`, which is a user or `ROOM`."""
        raise NotImplementedError

    def advance(self) -> None:
        """Continue the script."""
        assert self.script is not None
        output, self.marker = next(self.script, (b"", b""))
        self.received = b""
        if self.marker:
            self.send(output)
        else:
            self.script = None
            self.load.ready += 1

    def send(self, data: bytes) -> None:
        if not self._unsent:
            try:
                data = data[self.socket.send(data) :]
            except BlockingIOError:
                pass
            except OSError as exc:
                raise PeerFailed(f"{self.user}: {exc}") from exc
        if data or self._unsent:
            self._unsent += data
            self.load.watch(self, is_blocked=True)

    def send_rest(self) -> None:
        """Send what the socket did not take before."""
        data, self._unsent = self._unsent, b""
        self.load.watch(self, is_blocked=False)
        self.send(data)


class Load:
    """The clients of one server. `fan_out`: how many of them get each message."""

    def __init__(
        self, port: int, protocol: type[Client], token: Callable[[str], str], *, is_room: bool
    ) -> None:
        self.port, self.token, self.is_room = port, token, is_room
        self.ready = 0
        self.clients: list[Client] = []
        self.senders: list[Client] = []
        self.fan_out = 1
        self._protocol = protocol
        pattern = rb"~(\d{8})~"
        if protocol.acknowledgment:
            pattern += b"|" + protocol.acknowledgment
        self._find = re.compile(pattern).finditer
        self._epoll = select.epoll()
        self._by_fd: dict[int, Client] = {}
        # By message number: its scheduled time, whether it was acknowledged, and its deliveries.
        self._due = array("d")
        self._acked = bytearray()
        self._deliveries = bytearray()
        self._first = 0  # number of the first message of this step
        self._arrived = self._acks = 0  # of this step
        self._latencies = array("d")
        self._seed = 0

    # set-up

    def open(self, users: int) -> None:
        """Log in the users: pairs of a sender and a recipient, or the members of the room.

        Raises:
            PeerFailed: a user could not log in in time.
        """
        half = users // 2
        for number in range(users):
            recipient = ROOM if self.is_room else f"u{(number + half) % users:04}"
            self.clients.append(self._protocol(self, number, recipient))
        self.senders = self.clients if self.is_room else self.clients[:half]
        self.fan_out = users if self.is_room else 1
        for slot, client in enumerate(self.clients if self.is_room else self.clients[half:]):
            client.slot = slot if self.is_room else 0
        self._run_scripts(self._start_login)
        self._run_scripts(lambda client: client.enter())

    def _start_login(self, client: Client) -> Script:
        client.connect()
        self._by_fd[client.socket.fileno()] = client
        self._epoll.register(client.socket, select.EPOLLIN)
        return client.log_in()

    def _run_scripts(self, start: Callable[[Client], Script]) -> None:
        self.ready, started, until = 0, 0, perf_counter() + SET_UP_S
        while self.ready < len(self.clients):
            while started < len(self.clients) and started - self.ready < _SET_UPS_IN_FLIGHT:
                client = self.clients[started]
                started += 1
                client.script = start(client)
                client.advance()
            self._poll(0.1)
            if perf_counter() > until:
                stuck = next(client for client in self.clients if client.script is not None)
                raise PeerFailed(f"{stuck.user} waits for {stuck.marker!r}: {stuck.received!r}")

    def close(self) -> None:
        for client in self.clients:
            client.socket.close()
        self._epoll.close()

    # the loop

    def watch(self, client: Client, *, is_blocked: bool) -> None:
        """Wait for input, and, if `is_blocked`, until the socket takes output."""
        self._epoll.modify(client.socket, select.EPOLLIN | (select.EPOLLOUT if is_blocked else 0))

    def _poll(self, timeout_s: float) -> bool:
        """Handle what has arrived; if nothing has, first wait. Return whether anything had."""
        events = self._epoll.poll(0)
        if not events and timeout_s > 0:
            # `epoll` waits for whole milliseconds. Busy waiting would slow down a server on the
            # other hyperthread of this core.
            select.select([self._epoll], [], [], timeout_s)
            events = self._epoll.poll(0)
        for fd, event in events:
            client = self._by_fd[fd]
            if event & select.EPOLLOUT:
                client.send_rest()
            if event & ~select.EPOLLOUT:
                self._read(client)
        return bool(events)

    def _read(self, client: Client) -> None:
        try:
            data = client.socket.recv(262_144)
        except OSError as exc:
            raise PeerFailed(f"{client.user}: {exc}") from exc
        if not data:
            raise PeerFailed(f"{client.user}: connection closed after {client.received[-200:]!r}")
        data = client.received + data
        if client.script is not None:
            client.received = data
            if client.marker in data:
                client.advance()
            return
        now, end, slot = perf_counter(), 0, client.slot
        for match in self._find(data):
            end = match.end()
            if match.lastindex == 2:
                number = int(match[2])
                self._acked[number] = 1
                self._acks += number >= self._first
            elif slot is not None:
                number = int(match[1])
                self._deliveries[number * self.fan_out + slot] += 1
                if number >= self._first:
                    self._arrived += 1
                    self._latencies.append(now - self._due[number])
        client.received = data[max(end, len(data) - _TAIL_BYTES) :]

    # steps

    def run_step(self, rate: float, seconds: float, meter: CpuMeter) -> Figures:
        """Send at a fixed rate; return latencies, CPU costs and what is missing.

        `missing`: deliveries and acknowledgments that had not arrived `GRACE_S` after the end.

        Raises:
            PeerFailed: the server closed a connection.
        """
        self._seed += 1
        due, order = build_schedule(rate, seconds, len(self.senders), self._seed)
        self._first = first = number = len(self._due)
        begin = perf_counter() + 0.02
        self._due.extend(begin + due_s for due_s in due)
        self._acked.extend(bytes(len(due)))
        self._deliveries.extend(bytes(len(due) * self.fan_out))
        self._arrived = self._acks = 0
        self._latencies = array("d")
        lateness = array("d")
        end = meter.start(lambda: number - first)
        last = len(self._due)
        while (now := perf_counter()) < begin + seconds or number < last:
            limit = min(last, number + _SENDS_AT_ONCE)
            while number < limit and self._due[number] <= now:
                text = b"~%08d~%b" % (number, _FILLER)
                sender = self.senders[order[number - first]]
                sender.send(sender.encode(number, text))
                lateness.append(now - self._due[number])
                number += 1
            self._poll((self._due[number] if number < last else begin + seconds) - perf_counter())
        figures = end()
        until = perf_counter() + GRACE_S
        while (missing := self._count_missing()) and perf_counter() < until:
            self._poll(0.01)
        used_us = sum(us for role, us in figures["cpu_us_each"].items() if role != "load")
        return {
            **summarize_ms(self._latencies),
            "missing": missing,
            "cpu_us": round(used_us, 1),
            "load_share": figures["cpu_share"]["load"],
            "others_share": figures["server_core_others_share"],
            "late_ms": summarize_ms(lateness).get("p99_ms", 0.0),
        }

    def _count_missing(self) -> int:
        sent = len(self._due) - self._first
        expected_acks = sent if self._protocol.acknowledgment else 0
        return max(0, sent * self.fan_out - self._arrived) + max(0, expected_acks - self._acks)

    def drain(self) -> None:
        """Wait until the server has sent everything, or for `DRAIN_S`."""
        until = perf_counter() + DRAIN_S
        while self._poll(QUIET_S) and perf_counter() < until:
            pass

    def count_violations(self) -> Figures:
        """Return the deliveries that are lost and repeated, of all acknowledged messages.

        Without acknowledgments, all messages count.
        """
        acked: Sequence[int] = self._acked
        if not self._protocol.acknowledgment:
            acked = bytes([1]) * len(acked)
        lost = sum(
            acked[index // self.fan_out]
            for index, count in enumerate(self._deliveries)
            if not count
        )
        return {"lost": lost, "duplicate": sum(max(0, count - 1) for count in self._deliveries)}
