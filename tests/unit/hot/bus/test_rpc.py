"""The user or chat to which an rpc call is charged."""

from __future__ import annotations

import contextvars

import pytest

from chatserver.domain.access.caller import CALLER
from chatserver.hot.bus.rpc import AnyOperation, LoadChat, LoadKeys, OpenDirect, get_payer


@pytest.mark.parametrize(
    ("caller", "operation", "payer"),
    [
        ("", OpenDirect("alice", "bob"), "alice"),
        ("carol", OpenDirect("alice", "bob"), "carol"),
        ("", LoadChat("c1"), "c1"),
        ("carol", LoadChat("c1"), "carol"),
        ("", LoadKeys(), ""),
    ],
)
def test_payer_of_a_call_is_the_user_whose_request_caused_it(
    caller: str, operation: AnyOperation, payer: str
) -> None:
    """A chat loaded for a request is charged to its user, one loaded for a send to itself."""

    def find() -> str:
        CALLER.set(caller)
        return get_payer(operation)

    assert contextvars.copy_context().run(find) == payer
