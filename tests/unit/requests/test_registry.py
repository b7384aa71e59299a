"""Declared requests: every frame that a worker handles is declared once."""

from __future__ import annotations

import typing

import pytest

from chatserver.errors import BadRequest
from chatserver.protocol import frames
from chatserver.protocol.redis_memory_costs import PROTECTIVE
from chatserver.protocol.request_costs import FRAME_COSTS
from chatserver.requests.registry import get_operation, list_operations


def test_each_worker_request_is_declared_and_has_one_cost() -> None:
    """The gateway forwards no other frame, and no cost is written down twice."""
    declared = set(list_operations())

    assert declared == set(typing.get_args(frames.AnyWorkerRequest))
    assert not declared & set(FRAME_COSTS)


def test_lists_are_needed_when_redis_is_full_and_changes_are_not() -> None:
    """Apart from requests that protect a user, only reads get through."""
    needed = {
        frame.__struct_config__.tag
        for frame, operation in list_operations().items()
        if operation.is_needed_when_full
    }

    assert needed == {"blocks", "companions", "get_session", "invitations", "sessions"}
    assert frames.Block in PROTECTIVE


def test_frame_of_a_feature_that_is_not_installed_is_refused() -> None:
    with pytest.raises(BadRequest, match="search: not available on this server"):
        get_operation(frames.Search(1, "words"))
