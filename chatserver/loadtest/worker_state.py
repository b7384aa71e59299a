"""State shared by all devices of a worker process: users, counts, latencies, findings."""

from __future__ import annotations

import collections
import time
import zlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from chatserver.loadtest.delivery_checker import ChatRecord, Findings, encode_key
from chatserver.loadtest.histogram import Histogram
from chatserver.loadtest.wire import Address

_SUM_MARK: Final = "="
_SUM_CHARS: Final = 10  # `=`, eight hexadecimal digits and a space


def get_now_us() -> int:
    return time.monotonic_ns() // 1000


def get_body_text(run: str, body: str) -> str:
    """Return the text of a message of this run without its header; other bodies unchanged."""
    parts = body.split(" ", 4)
    if len(parts) != 5 or parts[0] != run:
        return body
    return parts[4][_SUM_CHARS:] if parts[4].startswith(_SUM_MARK) else parts[4]


def _compute_sum(head: str, text: str) -> str:
    return f"{_SUM_MARK}{zlib.crc32((head + text).encode()):08x} "


class Meters:
    """Counts and latencies since the last call to `pop_all`."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.histograms: dict[str, Histogram] = {}

    def record_latency(self, name: str, microseconds: int) -> None:
        histogram = self.histograms.get(name)
        if histogram is None:
            histogram = self.histograms[name] = Histogram()
        histogram.record(microseconds)

    def pop_all(self) -> dict[str, Any]:
        """Return all measurements, ready for JSON, and reset them."""
        popped = {
            "counts": dict(self.counts),
            "histograms": {
                name: histogram.to_json() for name, histogram in self.histograms.items()
            },
        }
        self.counts.clear()
        self.histograms.clear()
        return popped


class ParsedBody(NamedTuple):
    """The message key, the scheduled time and the text of a message of this run."""

    key: int
    due_us: int
    text: str


class WorkerState(msgspec.Struct):
    """Server address, user identities and results. `on_done` is called after each action."""

    run: str
    address: Address
    mint: Callable[[str], str]  # creates a token for a user
    body_bytes: int
    meters: Meters = msgspec.field(default_factory=Meters)
    findings: Findings = msgspec.field(default_factory=Findings)
    records: dict[str, ChatRecord] = {}
    retried: set[int] = msgspec.field(default_factory=set)  # keys of retried sends
    # maps an error code to its first error message
    refusals: dict[str, str] = {}
    last_failure: str = ""  # why the last failed connect or request failed
    fatal: str = ""  # why the run cannot continue
    on_done: Callable[[], None] = lambda: None
    is_over: bool = False

    def build_user_id(self, index: int) -> str:
        return f"load-{self.run}-{index}"

    def build_body(self, index: int, number: int, due_us: int, text: str | None = None) -> str:
        """Return a body with the sender, message number and scheduled time.

        Then follow a checksum and the text. Without a text, the body is filled to `body_bytes`.
        """
        head = f"{self.run} {index} {number} {due_us} "
        if text is None:
            return head + "x" * (self.body_bytes - len(head))
        return f"{head}{_compute_sum(head, text)}{text}"

    def parse_body(self, sender: str, ref: str, body: str) -> ParsedBody | None:
        """Parse the body of a received message; return None if it is from another run.

        A modified message is recorded as a violation.
        """
        parts = body.split(" ", 4)
        if len(parts) != 5 or parts[0] != self.run:
            return None
        try:
            index, number, due_us = int(parts[1]), int(parts[2]), int(parts[3])
        except ValueError:
            index = number = due_us = 0
        text = parts[4]
        is_filled = text[:1] != _SUM_MARK
        if not is_filled:
            text = text[_SUM_CHARS:]
        if (
            body != self.build_body(index, number, due_us, None if is_filled else text)
            or sender != self.build_user_id(index)
            or ref != self.build_ref(index, number)
        ):
            self.findings.add("mismatched", f"{sender} {ref}: {body[:80]!r}")
        return ParsedBody(encode_key(index, number), due_us, text)

    def build_ref(self, index: int, number: int) -> str:
        return f"{self.run}-{index}-{number}"
