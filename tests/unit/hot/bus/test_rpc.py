"""The key by which an rpc call is queued."""

from __future__ import annotations

import contextvars

import pytest

from chatserver.domain.access.caller import CALLER, RequestCaller
from chatserver.domain.ids import UserId
from chatserver.hot.bus.rpc import (
    AnyOperation,
    LoadChat,
    LoadKeys,
    OpenDirectChat,
    get_queue_key,
    is_protective,
)
from chatserver.protocol import frames
from chatserver.requests.registry import make_call

ALICE, NEW = UserId("alice"), UserId("new")
NETWORK = "network/4-0a0102"


@pytest.mark.parametrize(
    ("caller", "operation", "key"),
    [
        (RequestCaller(), OpenDirectChat("alice", "bob"), "alice"),
        (RequestCaller("carol"), OpenDirectChat("alice", "bob"), "carol"),
        (RequestCaller(), LoadChat("c1"), "c1"),
        (RequestCaller("carol"), LoadChat("c1"), "carol"),
        (RequestCaller(), LoadKeys(), ""),
        (RequestCaller("new", ("4-0a0102",)), OpenDirectChat("new", "bob"), NETWORK),
        (RequestCaller("new", ("6-1", "6-0")), LoadChat("c1"), "network/6-0"),
        (
            RequestCaller("new", ("4-0a0102",)),
            make_call(NEW, frames.Block(1, "bob")),
            "new",
        ),
        (RequestCaller("new", ("4-0a0102",)), make_call(NEW, frames.Blocks(1)), NETWORK),
    ],
)
def test_queue_key_of_a_call_is_that_of_the_caller_who_caused_it(
    caller: RequestCaller, operation: AnyOperation, key: str
) -> None:
    """New accounts of a network share a key, but not for calls that protect them."""

    def find() -> str:
        CALLER.set(caller)
        return get_queue_key(operation)

    assert contextvars.copy_context().run(find) == key


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (make_call(ALICE, frames.Block(1, "bob")), True),
        (make_call(ALICE, frames.Leave(1, "c1", "r1")), True),
        (make_call(ALICE, frames.Invite(1, "c1", "r1", ["bob"])), False),
        (make_call(ALICE, frames.Blocks(1)), False),
        (OpenDirectChat("alice", "bob"), False),
    ],
)
def test_only_calls_that_protect_a_user_are_protective(
    operation: AnyOperation, expected: bool
) -> None:
    assert is_protective(operation) is expected
