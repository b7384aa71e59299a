"""Declared requests: what all declarations have in common."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chatserver.config.rate_limits import REQUESTS_BURST_MIN
from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest
from chatserver.protocol import frames
from chatserver.protocol.request_costs import REQUEST_COST_MAX
from chatserver.requests.operation import Operation
from chatserver.requests.registry import (
    compute_frame_cost,
    decode_frame,
    list_operations,
    make_call,
    read_call,
)
from tests.unit.protocol.shapes import sample_of

OPERATIONS = list(list_operations().values())


def get_name(operation: Operation[Any]) -> str:
    return operation.name


def test_lists_are_needed_when_redis_is_full_and_changes_are_not() -> None:
    """Apart from requests that protect a user, only reads get through."""
    needed = {each.name for each in OPERATIONS if each.is_needed_when_full}

    assert needed == {"blocks", "companions", "get_session", "invitations", "sessions"}


def test_requests_that_protect_a_user_are_declared() -> None:
    """A user whose budgets are spent can still stop others from writing to them."""
    protective = {each.name for each in OPERATIONS if each.is_protective}

    assert protective == {
        "block", "unblock", "report", "delete", "leave", "remove", "ban_member", "unban_member",
        "mute_member", "decline_invitation",
    }  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS, ids=get_name)
def test_request_has_a_handler_unless_the_session_handles_it(operation: Operation[Any]) -> None:
    assert (operation.handler is None) == (operation.runs_in == "session")


@pytest.mark.parametrize(
    "operation", [each for each in OPERATIONS if each.runs_in == "worker"], ids=get_name
)
def test_frame_reaches_the_worker_as_it_was(operation: Operation[Any]) -> None:
    frame = msgspec.convert(sample_of(operation.frame), operation.frame)

    call = make_call(UserId("alice"), frame)

    assert call.name == operation.name
    assert read_call(call) == (operation, frame)


def test_only_an_invite_of_many_users_is_a_bulk_request() -> None:
    few, many = (
        make_call(UserId("alice"), frames.Invite(1, "c", "r", [f"u{n}" for n in range(count)]))
        for count in (16, 17)
    )

    assert (few.priority, many.priority) == ("normal", "bulk")


def test_frame_that_is_not_declared_is_refused() -> None:
    """Without its feature, a frame is an unknown one."""
    with pytest.raises(BadRequest, match="unknown frame type"):
        decode_frame(b'{"type":"absent","id":1}')


def test_costs_of_the_most_expensive_frames_fit_the_smallest_burst() -> None:
    """With any settings, every valid request fits into the rate limit."""
    members = [f"u{n}" for n in range(frames.MEMBERS_MAX - 1)]
    users = [f"u{n}" for n in range(frames.INVITE_MAX)]
    most_expensive = [
        frames.CreateChat(1, "r", members),
        frames.Invite(1, "c", "r", users),
        frames.Chats(1, None, frames.PAGE_MAX),
        frames.Watch([f"u{n}" for n in range(frames.WATCH_MAX)]),
    ]

    costs = [compute_frame_cost(frame) for frame in most_expensive]

    assert REQUESTS_BURST_MIN == REQUEST_COST_MAX
    assert max(costs) <= REQUEST_COST_MAX
    assert costs[0] > 50
