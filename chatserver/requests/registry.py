"""The declared requests of the core and of the installed features."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any

import msgspec

from chatserver.errors import BadRequest
from chatserver.features.registry import list_features
from chatserver.protocol.request_costs import BASE, FRAME_COSTS, REQUEST_COST_MAX, Cost
from chatserver.requests.operation import Operation

_CORE = ("invitations", "membership", "moderation")


@functools.cache
def list_operations() -> Mapping[type, Operation[Any]]:
    """Return all declared requests, by frame type."""
    modules = [f"chatserver.requests.{name}" for name in _CORE]
    modules += [feature.requests for feature in list_features() if feature.requests]
    found: dict[type, Operation[Any]] = {}
    for module in modules:
        for each in vars(importlib.import_module(module)).values():
            if isinstance(each, Operation) and found.setdefault(each.frame, each) is not each:
                raise ValueError(f"{each.frame.__name__} is declared twice")
    return found


def get_operation(frame: msgspec.Struct) -> Operation[Any]:
    """Return the declaration of a frame. Raises BadRequest if no installed feature has it."""
    operation = list_operations().get(type(frame))
    if operation is None:
        raise BadRequest(f"{frame.__struct_config__.tag}: not available on this server")
    return operation


@functools.cache
def _list_costs() -> Mapping[type, Cost]:
    declared = {frame: operation.cost for frame, operation in list_operations().items()}
    return FRAME_COSTS | declared


def compute_frame_cost(frame: msgspec.Struct) -> int:
    """Return the cost of a frame in tokens."""
    cost = _list_costs().get(type(frame), BASE)
    return min(cost if isinstance(cost, int) else cost(frame), REQUEST_COST_MAX)
