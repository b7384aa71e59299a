"""Requests are due at fixed times even if the server is slow (no coordinated omission)."""

from __future__ import annotations

import random
import time
from typing import Any

from chatserver.loadtest import frame_reader
from chatserver.loadtest.arrival_schedule import Pacer, iter_arrivals
from chatserver.loadtest.device import LoadDevice
from chatserver.loadtest.plan import split_groups, split_users
from chatserver.loadtest.wire import Address
from chatserver.loadtest.worker_state import WorkerState, get_now_us


def test_arrivals_with_the_same_seed_are_equal_and_match_the_rate() -> None:
    """Two runs with one seed send at the same times."""
    due = list(iter_arrivals(100.0, 50.0, random.Random("a")))

    assert due == list(iter_arrivals(100.0, 50.0, random.Random("a")))
    assert due == sorted(due) and 4600 < len(due) < 5400


async def test_pacer_that_is_late_runs_everything_that_was_due() -> None:
    """Each call gets its own due time, and none is skipped."""
    begin = time.monotonic() - 10
    done: list[tuple[int, float]] = []
    late: list[float] = []

    pacer = Pacer(
        [0.0, 1.0, 2.5], begin, lambda n, due: done.append((n, due - begin)), on_late=late.append
    )
    await pacer.finished

    assert [(n, round(due, 6)) for n, due in done] == [(0, 0.0), (1, 1.0), (2, 2.5)]
    assert late[0] >= 10 and late[2] >= 7.5


class _FakeTransport:
    """A connection without responses; the test passes them to the device."""

    def __init__(self) -> None:
        self.transport = self
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += data.count(b'"type":"send"')


def test_stalled_server_raises_the_latency_of_all_due_sends() -> None:
    """Sends that waited in the client, at the limit of 64 unanswered ones, count too."""
    worker = WorkerState(
        run="r", address=Address("127.0.0.1", 1), mint=lambda user: "", body_bytes=100
    )
    device, transport = LoadDevice(worker, 1), _FakeTransport()
    device._link = transport  # type: ignore[assignment]
    begin = get_now_us() - 2_000_000

    for n in range(200):
        device.send("chat", begin + n * 10_000)
    stalled = transport.written
    for n in range(200):
        device.handle_frame(frame_reader.Ack(id=n + 1, seq=n + 1, dup=False))

    latencies: Any = worker.meters.histograms["ack"]
    assert (stalled, transport.written) == (64, 200)
    assert latencies.total == 200
    assert latencies.get_quantile(0.5) >= 1_000_000
    assert latencies.max >= 2_000_000


def test_users_are_split_without_dividing_a_group() -> None:
    """Each process gets whole groups, and each user is in one process."""
    assert split_users(200, 3, 2) == [(0, 68), (68, 66), (134, 66)]
    assert split_users(300, 4, 300) == [(0, 300)]
    assert split_users(25, 2, 8) == [(0, 16), (16, 9)]
    assert [list(group) for group in split_groups(9, 4)] == [[0, 1, 2, 3], [4, 5, 6, 7, 8]]
    assert [len(group) for group in split_groups(20, 8)] == [8, 8, 4]
