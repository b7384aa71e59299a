"""The conflict matrix of transactions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from chatserver.dev.aws_limits.conflicts import RunningRequests
from chatserver.dev.aws_limits.requests import ItemKey

A: ItemKey = ("t", ("a", "1"))
B: ItemKey = ("t", ("b", "1"))
Start = Callable[[RunningRequests], contextlib.AbstractContextManager[object]]

RUNNING: dict[str, Start] = {
    "TransactWriteItems": lambda running: running.transaction([A]),
    "write": lambda running: running.write([A]),
    "TransactGetItems": lambda running: running.read_transaction([A]),
}


@pytest.mark.parametrize(
    ("during", "refused"),
    [
        ("TransactWriteItems", {"write", "TransactWriteItems", "TransactGetItems"}),
        ("write", {"TransactGetItems"}),
        ("TransactGetItems", set()),
    ],
)
def test_request_conflicts_with_running_ones_on_its_item(during: str, refused: set[str]) -> None:
    """Each pair of *Transaction conflict handling in DynamoDB*; another item never conflicts."""
    running = RunningRequests()

    def list_refused(key: ItemKey) -> set[str]:
        found = {"write", "TransactWriteItems"} if any(running.find_transactions([key])) else set()
        with running.read_transaction([key]) as read:
            return found | ({"TransactGetItems"} if any(read.conflicts) else set())

    with RUNNING[during](running):
        assert list_refused(A) == refused
        assert list_refused(B) == set()
    assert list_refused(A) == set()


@pytest.mark.parametrize("write", ["TransactWriteItems", "write"])
def test_read_transaction_is_canceled_by_a_later_write(write: str) -> None:
    """The write succeeds, and the read names the item, even after the write has ended."""
    running = RunningRequests()

    with running.read_transaction([B, A]) as read:
        assert read.conflicts == [False, False]
        with RUNNING[write](running):
            pass
        assert read.conflicts == [False, True]


def test_overlapping_writes_end_separately() -> None:
    """Two writes of an item succeed; a read transaction conflicts until both have ended."""
    running = RunningRequests()
    second = running.write([A])

    with running.write([A]):
        second.__enter__()
    with running.read_transaction([A]) as read:
        assert read.conflicts == [True]
    second.__exit__(None, None, None)
    with running.read_transaction([A]) as read:
        assert read.conflicts == [False]


def test_failed_transaction_releases_its_items() -> None:
    running = RunningRequests()

    with pytest.raises(RuntimeError), running.transaction([A, B]):
        raise RuntimeError
    assert running.find_transactions([A, B]) == [False, False]
